//! Every variant of every kernel, linked and held against what the Rust side says of it: valid
//! WGSL under exactly its capabilities, bindings and parameters by reflection, and baseline limits.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ScalarKind, StorageAccess, TypeInner};
use twoclock_shaders::caps::{Caps, Coop, Dialect};
use twoclock_shaders::cpu;
use twoclock_shaders::kernel::{Access, Kernel, KernelKey, Scalar};
use twoclock_shaders::kernels::ALL;
use twoclock_shaders::kernels::matmul::Needs;
use twoclock_shaders::link::link;

fn variants() -> impl Iterator<Item = (&'static Kernel, KernelKey)> {
    ALL.iter().flat_map(|kernel| {
        (kernel.variants)()
            .into_iter()
            .map(move |key| (*kernel, key))
    })
}

fn parse(kernel: &Kernel, key: &KernelKey) -> (Module, String) {
    let text = link(kernel, key, Dialect::Native).unwrap_or_else(|e| panic!("{e}"));
    let module = naga::front::wgsl::parse_str(&text)
        .unwrap_or_else(|e| panic!("{key}:\n{}", e.emit_to_string(&text)));
    (module, text)
}

/// Whether a variant is for devices with cooperative matrices, of which those are taken that have more
/// workgroup memory than WebGPU promises.
fn cooperates(text: &str) -> bool {
    text.contains("enable wgpu_cooperative_matrix;")
}

#[test]
fn every_variant_is_valid_wgsl() {
    let mut seen = 0;
    for (kernel, key) in variants() {
        let (module, text) = parse(kernel, &key);
        // No variant may need anything a plain WebGPU device lacks, but what it says it enables.
        // (`unpack2x16float` is core WGSL; naga has a flag for it.)
        let core = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let subgroups = text.lines().any(|line| line == "// enable: subgroups");
        let mut capabilities = core;
        if subgroups {
            capabilities |= Capabilities::SUBGROUP;
        }
        if cooperates(&text) {
            capabilities |= Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX;
            assert!(!subgroups, "{key}: drivers have crashed on both together");
        }
        let mut validator = Validator::new(ValidationFlags::all(), capabilities);
        if subgroups {
            validator
                .subgroup_stages(ShaderStages::COMPUTE)
                .subgroup_operations(SubgroupOperationSet::all());
        }
        validator
            .validate(&module)
            .unwrap_or_else(|e| panic!("{key}:\n{}", e.emit_to_string(&text)));
        seen += 1;
    }
    assert!(seen >= ALL.len(), "every kernel names its variants");
}

#[test]
fn bindings_and_params_are_what_rust_says() {
    for (kernel, key) in variants() {
        let (module, _) = parse(kernel, &key);
        for (_, var) in module.global_variables.iter() {
            let name = var.name.as_deref().unwrap_or_default();
            match var.space {
                AddressSpace::Storage { access } => {
                    let binding = var.binding.as_ref().expect("a storage binding").binding;
                    let def = kernel.bindings.get(binding as usize).unwrap_or_else(|| {
                        panic!("{key}: binding {binding} ({name}) is not in the table")
                    });
                    assert_eq!(def.name, name, "{key}: binding {binding}");
                    let written = access.contains(StorageAccess::STORE);
                    assert_eq!(written, def.access == Access::ReadWrite, "{key}: {name}");
                }
                AddressSpace::Uniform => {
                    let binding = var.binding.as_ref().expect("a uniform binding").binding;
                    assert_eq!(
                        binding as usize,
                        kernel.bindings.len(),
                        "{key}: params binding"
                    );
                    let TypeInner::Struct { members, span } = &module.types[var.ty].inner else {
                        panic!("{key}: params are not a struct");
                    };
                    assert_eq!(*span as usize, kernel.params_bytes(), "{key}: params size");
                    assert_eq!(members.len(), kernel.params.len(), "{key}: params");
                    for (i, (member, (field, scalar))) in
                        members.iter().zip(kernel.params).enumerate()
                    {
                        assert_eq!(member.name.as_deref(), Some(*field), "{key}");
                        assert_eq!(member.offset as usize, 4 * i, "{key}: {field}");
                        let TypeInner::Scalar(wgsl) = module.types[member.ty].inner else {
                            panic!("{key}: {field} is not a scalar");
                        };
                        let kind = match scalar {
                            Scalar::U32 => ScalarKind::Uint,
                            Scalar::F32 => ScalarKind::Float,
                        };
                        assert_eq!((wgsl.kind, wgsl.width), (kind, 4), "{key}: {field}");
                    }
                }
                _ => {}
            }
        }
        let bound = module
            .global_variables
            .iter()
            .filter(|(_, var)| var.binding.is_some())
            .count();
        assert_eq!(bound, kernel.bindings.len() + 1, "{key}: bindings");
    }
}

#[test]
fn baseline_variants_keep_webgpu_limits() {
    let limits = Caps::portable_gpu();
    for (kernel, key) in variants() {
        let (module, text) = parse(kernel, &key);
        assert!(
            kernel.bindings.len() <= limits.max_storage_buffers as usize,
            "{key}: storage buffers"
        );
        let [main] = module.entry_points.as_slice() else {
            panic!("{key}: one entry point");
        };
        assert_eq!(main.name, "main", "{key}");
        let invocations: u32 = main.workgroup_size.iter().product();
        // Shapes that a device must have room for count what they need.
        let needs = Needs::of(&key).filter(|needs| !needs.fit(&limits));
        let most = needs.map_or(limits.max_invocations, |n| n.invocations);
        assert!(invocations <= most, "{key}: {invocations}");
        let shared: u32 = module
            .global_variables
            .iter()
            .filter(|(_, var)| var.space == AddressSpace::WorkGroup)
            .map(|(_, var)| module.types[var.ty].inner.size(module.to_ctx()))
            .sum();
        let most = match cooperates(&text) {
            true => Coop::WORKGROUP_BYTES,
            false => needs.map_or(limits.max_workgroup_bytes, |n| n.workgroup_bytes),
        };
        assert!(shared <= most, "{key}: {shared} bytes of workgroup memory");
    }
}

/// Bodies only GPUs run. Every other one may run on a processor, software drivers included, where
/// barriers are dear.
const GPU_BODIES: [&str; 4] = ["_workgroup", "_gemv", "_tile", "_split"];

#[test]
fn processors_get_bodies_without_barriers() {
    let mut gpu_only = 0;
    for (kernel, key) in variants() {
        let (module, text) = parse(kernel, &key);
        let barriers = text.contains("workgroupBarrier");
        let shared = module
            .global_variables
            .iter()
            .any(|(_, var)| var.space == AddressSpace::WorkGroup);
        if GPU_BODIES.iter().any(|end| key.body.ends_with(end)) {
            gpu_only += usize::from(barriers && shared);
        } else {
            assert!(!barriers && !shared, "{key} waits for other lanes");
        }
    }
    assert!(gpu_only > 0, "barriers are found where they are");
}

#[test]
fn what_a_processor_is_given_is_for_processors() {
    use twoclock_shaders::kernels::matmul::Regime;
    for subgroups in [None, Some((4, 4)), Some((8, 8)), Some((4, 128))] {
        let caps = Caps {
            subgroups,
            ..Caps::reference()
        };
        for tokens in [1, 2, 8, 9, 64, 65, 512] {
            let regime = Regime::choose(&caps, tokens);
            assert!(matches!(regime, Regime::Row { .. }), "{regime:?}");
        }
    }
}

#[test]
fn every_kernel_has_a_reference() {
    let mut ours: Vec<&str> = ALL.iter().map(|kernel| kernel.name).collect();
    let mut theirs: Vec<&str> = cpu::KERNELS.iter().map(|(name, _)| *name).collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
}

/// No machine here has cooperative matrices: what is known is that naga lowers the kernel to matrix
/// products, and that no module has both them and subgroup operations.
#[test]
fn cooperative_matrices_become_matrix_products() {
    use naga::back::spv;
    let (mut lowered, multiply_add) = (0, 4459);
    for (kernel, key) in variants() {
        let (module, text) = parse(kernel, &key);
        if !cooperates(&text) {
            continue;
        }
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module);
        let info = info.unwrap_or_else(|e| panic!("{key}: {e:?}"));
        let options = spv::Options {
            lang_version: (1, 6),
            ..spv::Options::default()
        };
        let words =
            spv::write_vec(&module, &info, &options, None).unwrap_or_else(|e| panic!("{key}: {e}"));
        // Header of five words; then instructions: opcode in the low half, length in the high.
        let (mut at, mut products) = (5, 0);
        while let Some(&word) = words.get(at) {
            let opcode = word & 0xffff;
            products += usize::from(opcode == multiply_add);
            assert!(
                !(333..=366).contains(&opcode),
                "{key}: a subgroup operation"
            );
            at += (word >> 16).max(1) as usize;
        }
        assert!(products >= 1, "{key}: no matrix product");
        lowered += 1;
    }
    assert!(lowered >= 3 * 16, "{lowered}");
}
