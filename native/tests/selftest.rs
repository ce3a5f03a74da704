//! The programs `twoclock selftest` and `twoclock dump-shaders`: what a small model asks for is compared,
//! what computes something else is noticed, and shaders are files.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use twoclock::asked_variants::variants;
use twoclock::loads::{limits, load, serve_all_kinds};
use twoclock::selftest::models;
use twoclock::selftest::steps::{Pass, Steps};
use twoclock_core::runner::{ComputeDtype, NumericsClass, RunnerOptions};
use twoclock_core::weights::Layers;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::{Bound, CpuExecutor};
use twoclock_shaders::kernel::KernelKey;
use twoclock_shaders::recording::RecordingExecutor;
use twoclock_shaders::twin::TwinExecutor;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/Q4_0.gguf")
}

/// Runs the program; gives its standard output or error.
fn twoclock(arguments: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .env("TWOCLOCK_HOME", home.path())
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

#[test]
fn what_a_model_asks_for_is_compared() {
    let file = model();
    let file = file.to_str().unwrap();
    let text = twoclock(&["selftest", "-m", file, "--json"]).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["passed"], true, "{text}");
    assert_eq!(found["same_tokens"], "bits", "{text}");
    let devices = twoclock(&["devices", "--json"]).unwrap();
    let devices: Value = serde_json::from_str(&devices).unwrap();
    assert_eq!(found["promised"], devices["devices"][0]["same_tokens"]);
    let subject = &found["subjects"][0];
    assert_eq!(subject["not_compared"].as_array().unwrap().len(), 0);
    assert!(subject["regimes"]["values"].as_u64().unwrap() > 1000);
    let kernels = found["kernels"].as_object().unwrap();
    for kernel in [
        "matmul",
        "attention_decode",
        "attention_prefill",
        "kv_copy",
        "pool_sum",
        "sample_scan",
    ] {
        assert!(kernels[kernel]["words"].as_u64().unwrap() > 0, "{kernel}");
    }
}

#[test]
fn models_for_the_test_can_be_made() {
    let all = models::all().unwrap();
    assert!(all.len() > 20);
    for subject in all.iter().chain(&models::defaults().unwrap()) {
        let narrow = subject.checkpoint.narrowed(Layers::Neighbours).unwrap();
        assert!(narrow.metadata.parameters < 20_000_000, "{}", subject.name);
    }
}

/// What narrow models run is what whole ones ask for, wherever a device's tuning has its borders.
#[test]
fn narrow_models_ask_for_the_kernels_of_whole_ones() {
    let tuned = |mut caps: Caps, fields: &[(&str, u32)]| {
        for &(field, value) in fields {
            caps.tuning = caps.tuning.with(field, value).unwrap();
        }
        caps
    };
    let gpu = Caps::portable_gpu;
    let processor = Caps {
        subgroups: Some((8, 8)),
        ..Caps::reference()
    };
    let class = |class| RunnerOptions {
        compute_dtype: ComputeDtype::Of(class),
        ..RunnerOptions::default()
    };
    let subjects = models::defaults().unwrap();
    for (caps, numerics) in [
        (processor.clone(), NumericsClass::Int8),
        (
            tuned(processor, &[("row_rows_many", 16), ("row_many", 2000)]),
            NumericsClass::F32,
        ),
        (gpu(), NumericsClass::F16),
        (tuned(gpu(), &[("gemv_tokens", 100)]), NumericsClass::F16),
        (tuned(gpu(), &[("skinny_tokens", 256)]), NumericsClass::F16),
        (Caps::portable_coop(), NumericsClass::Coop),
    ] {
        let options = class(numerics);
        let steps = Steps::of(&numerics.caps(&caps));
        for subject in &subjects {
            let mut run = HashSet::new();
            for pass in Pass::all(&caps) {
                let narrow = subject.checkpoint.narrowed(pass.layers()).unwrap();
                let (recording, launches) = RecordingExecutor::new(pass.caps.clone());
                let config = limits(&narrow, steps.longest());
                let mut core = load(recording, &narrow, config, options.clone()).unwrap();
                pass.serve(&mut core, &steps).unwrap();
                run.extend(launches.take().into_iter().map(|l| l.dispatch.key));
            }
            let asked = variants(&caps, &subject.checkpoint, &options).unwrap();
            let joined = ["fused_row_join", "fused_row_glu", "fused_row_qkv"];
            if subject.name.starts_with("llama") && caps.kind == DeviceKind::Cpu {
                for kernel in joined {
                    assert!(asked.iter().any(|key| key.kernel == kernel), "{kernel}");
                }
            }
            let missing: Vec<_> = asked.difference(&run).map(KernelKey::to_string).collect();
            assert!(
                missing.is_empty(),
                "{} on {caps:?}: {missing:?}",
                subject.name
            );
        }
    }
}

/// A kernel whose rows are off in one place.
fn wrong(_: &KernelKey, _: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    assert!(grid.iter().all(|&n| n > 0));
    bound.f32s_mut(2)[0] += 0.5;
}

#[test]
fn what_computes_something_else_is_noticed() {
    let subject = &models::defaults().unwrap()[0];
    let narrow = subject.checkpoint.narrowed(Layers::Kinds).unwrap();
    let serve = |device: CpuExecutor| {
        let (twin, agreements) = TwinExecutor::new(device);
        let config = limits(&narrow, 12);
        let mut core = load(twin, &narrow, config, RunnerOptions::default()).unwrap();
        serve_all_kinds(&mut core, 12).unwrap();
        let faults = agreements.borrow();
        let faults = faults.iter().filter(|(_, a)| a.fault.is_some());
        faults.map(|(key, _)| key.kernel).collect::<BTreeSet<_>>()
    };
    assert_eq!(serve(CpuExecutor::default()), BTreeSet::new());
    let broken = CpuExecutor::default().with_kernel("gather_rows", wrong);
    assert_eq!(serve(broken), BTreeSet::from(["gather_rows"]));
}

#[test]
fn shaders_are_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("shaders");
    let file = model();
    let arguments = [
        "dump-shaders",
        "-m",
        file.to_str().unwrap(),
        "--for",
        "gpu",
        "--spirv",
        folder.to_str().unwrap(),
    ];
    twoclock(&arguments).unwrap();
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Vec<Value> = serde_json::from_slice(&manifest).unwrap();
    let bodies: BTreeSet<_> = manifest
        .iter()
        .map(|v| v["body"].as_str().unwrap())
        .collect();
    assert!(
        bodies.contains("matmul_gemv") && bodies.contains("matmul_tile"),
        "{bodies:?}"
    );
    assert!(!bodies.contains("matmul_row"), "{bodies:?}");
    for variant in &manifest {
        let wgsl = folder.join(variant["wgsl"].as_str().unwrap());
        assert!(std::fs::read_to_string(wgsl).unwrap().contains("fn main"));
        let spirv = std::fs::read(folder.join(variant["spirv"].as_str().unwrap())).unwrap();
        assert_eq!(spirv[..4], 0x0723_0203u32.to_le_bytes());
    }
}

/// `--for gpu` is a GPU that has what a class is for.
#[test]
fn every_class_has_shaders() {
    let folder = tempfile::tempdir().unwrap();
    let file = model();
    for (class, body) in [
        ("f32", "matmul_gemv"),
        ("f16", "matmul_gemv"),
        ("int8", "matmul_gemv"),
        ("coop", "matmul_coop_split"),
    ] {
        let to = folder.path().join(class);
        let to = to.to_str().unwrap();
        let of = ["-m", file.to_str().unwrap(), "--for", "gpu"];
        twoclock(&[&["dump-shaders"], &of[..], &["--compute-dtype", class, to]].concat()).unwrap();
        let manifest = std::fs::read_to_string(Path::new(to).join("manifest.json")).unwrap();
        assert!(manifest.contains(body), "{class}");
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let refused = |arguments: &[&str], because: &str| {
        let said = twoclock(arguments).unwrap_err();
        assert!(said.contains(because), "{said}");
    };
    refused(&["selftest", "--device", "cpu"], "compared with");
    refused(&["selftest", "--all", "-m", "x"], "cannot be used with");
    refused(&["selftest", "-m", "no-such-model"], "no-such-model");
    refused(&["dump-shaders"], "<DIR>");
    refused(&["dump-shaders", "--for", "gpu", "x"], "--model");
    let file = model();
    let file = file.to_str().unwrap();
    // A folder below a file.
    let below = format!("{file}/shaders");
    refused(&["dump-shaders", &below], "cannot be written");
}
