//! The `devices` command: what a model can run on here, and the limits that decide how. Knows no
//! model.

use serde_json::{Value, json};
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::gpu::{AdapterSummary, adapters};

use crate::store::human_bytes;

/// Every adapter, best first, as `--device` numbers them.
pub fn find() -> Vec<AdapterSummary> {
    pollster::block_on(adapters())
}

/// One object a device; `device` is what `--device` takes.
pub fn as_json(found: &[AdapterSummary]) -> Value {
    let adapters = found.iter().enumerate().map(|(number, adapter)| {
        let mut device = limits(&adapter.caps);
        device["device"] = json!(number.to_string());
        device["name"] = json!(adapter.name);
        device["type"] = json!(adapter.kind);
        device["backend"] = json!(adapter.backend);
        device["driver"] = json!(adapter.driver);
        device["same_tokens"] = json!(same_tokens(adapter.same_bits()));
        device
    });
    let mut devices: Vec<_> = adapters.collect();
    devices.push(json!({
        "device": "cpu", "name": "reference kernels", "type": "reference",
        "same_tokens": same_tokens(true),
    }));
    json!({ "devices": devices })
}

/// For programs: what a request's tokens have in common however it is served, as is promised of a device.
pub fn same_tokens(bits: bool) -> &'static str {
    if bits { "bits" } else { "epsilon" }
}

fn limits(caps: &Caps) -> Value {
    json!({
        "shader_f16": caps.shader_f16,
        "cooperative_matrices": caps.coop.is_some(),
        "subgroup_sizes": caps.subgroups.map(|(min, max)| [min, max]),
        "max_binding_bytes": caps.max_binding_bytes,
        "max_buffer_bytes": caps.max_buffer_bytes,
        "max_workgroup_bytes": caps.max_workgroup_bytes,
        "max_invocations": caps.max_invocations,
    })
}

/// Lines for people.
pub fn as_text(found: &[AdapterSummary]) -> String {
    let mut text = String::new();
    for (number, adapter) in found.iter().enumerate() {
        let caps = &adapter.caps;
        let subgroups = match caps.subgroups {
            Some((min, max)) if min == max => format!("subgroups of {min}"),
            Some((min, max)) => format!("subgroups of {min} to {max}"),
            None => "no subgroups".into(),
        };
        let f16 = match (caps.shader_f16, caps.coop) {
            (_, Some(_)) => "f16 and cooperative matrices",
            (true, None) => "f16",
            (false, None) => "no f16",
        };
        text += &format!(
            "{number}    {} ({}, {})\n     driver {}\n     {f16}, {subgroups}, bindings of {}, buffers of {}, {} of workgroup memory\n     the same tokens however a request is served, {}\n",
            adapter.name,
            adapter.kind,
            adapter.backend,
            adapter.driver,
            human_bytes(caps.max_binding_bytes),
            human_bytes(caps.max_buffer_bytes),
            human_bytes(caps.max_workgroup_bytes.into()),
            match adapter.same_bits() {
                true => "to the bit",
                false => "up to where two are nearly as likely (`twoclock selftest` says more)",
            },
        );
    }
    text += "cpu  the reference kernels in plain Rust, on one thread\n";
    if found.is_empty() {
        text += "\nNo Vulkan, Metal or DX12 adapter was found: install your graphics driver, or Mesa's software\ndriver to try things out (on Debian and Ubuntu: libvulkan1 and mesa-vulkan-drivers).\n";
    } else if found
        .iter()
        .all(|adapter| adapter.caps.kind == DeviceKind::Cpu)
    {
        text +=
            "\nOnly a software driver was found. It is for trying and testing, not for speed.\n";
    }
    text
}
