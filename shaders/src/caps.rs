//! What an executor's device can do, as plain data. Programs are built from it, so a program for
//! any device can be built (and looked at) on any machine. Knows no graphics API.

use crate::tuning::Tuning;

/// What kind of machine runs the kernels; it decides which bodies are fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A processor: the reference executor, or a software Vulkan driver. Bodies without barriers
    /// and workgroup memory; no watchdog.
    Cpu,
    /// Any GPU.
    Gpu,
}

/// Who reads the WGSL text: the two differ in which `enable` lines they accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// naga, linked into a native program.
    Native,
    /// A browser's own compiler.
    Browser,
}

/// Cooperative matrices of 16 × 16 × 16: products of halves, sums in singles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coop {
    /// Lanes of a subgroup, all of which share a matrix: the device has no other size.
    pub subgroup: u32,
}

impl Coop {
    /// Bytes of workgroup memory that the widest tiles take: more than WebGPU promises.
    pub const WORKGROUP_BYTES: u32 = 19 << 10;
}

/// Capabilities and limits of a device. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Processor or GPU.
    pub kind: DeviceKind,
    /// Reader of the WGSL text.
    pub dialect: Dialect,
    /// `enable f16` is allowed.
    pub shader_f16: bool,
    /// Smallest and largest subgroup, where subgroup operations are offered.
    pub subgroups: Option<(u32, u32)>,
    /// Cooperative matrices, where they are offered (with `shader_f16`).
    pub coop: Option<Coop>,
    /// Largest storage binding.
    pub max_binding_bytes: u64,
    /// Largest buffer.
    pub max_buffer_bytes: u64,
    /// Storage buffers one kernel may bind.
    pub max_storage_buffers: u32,
    /// Invocations in one workgroup.
    pub max_invocations: u32,
    /// Workgroup memory of one workgroup.
    pub max_workgroup_bytes: u32,
    /// Workgroups in one dimension of a dispatch.
    pub max_workgroups: u32,
    /// Bindings start at multiples of this.
    pub binding_alignment: u64,
    /// Which variants are fastest where several give the same bits.
    pub tuning: Tuning,
}

impl Caps {
    /// WebGPU's default limits: what every device offers. Baseline variants stay inside them.
    pub fn portable_gpu() -> Self {
        Self {
            kind: DeviceKind::Gpu,
            dialect: Dialect::Native,
            shader_f16: false,
            subgroups: None,
            coop: None,
            max_binding_bytes: 128 << 20,
            max_buffer_bytes: 256 << 20,
            max_storage_buffers: 8,
            max_invocations: 256,
            max_workgroup_bytes: 16 << 10,
            max_workgroups: 65535,
            binding_alignment: 256,
            tuning: Tuning::default(),
        }
    }

    /// The same with cooperative matrices, and the workgroup memory that their kernels take.
    pub fn portable_coop() -> Self {
        Self {
            shader_f16: true,
            subgroups: Some((32, 32)),
            coop: Some(Coop { subgroup: 32 }),
            max_workgroup_bytes: Coop::WORKGROUP_BYTES,
            ..Self::portable_gpu()
        }
    }

    /// What probably suits a device that nobody has measured, by counting alone.
    pub fn usual_tuning(&self) -> Tuning {
        let usual = Tuning::default();
        // A workgroup of fewer lanes than a subgroup has leaves the others idle.
        let wide = self.subgroups.is_some_and(|(least, _)| least > 64);
        // A tile of 64 × 64 reads and unpacks two thirds of what 64 × 32 do for a product, in twice the
        // lanes; two of them must find room beside each other, so that one computes while the other
        // waits for its weights.
        let roomy = self.max_workgroup_bytes >= 40 << 10 && self.max_invocations >= 256;
        Tuning {
            gemv_lanes: if wide { 128 } else { usual.gemv_lanes },
            skinny_rows: if wide { 128 } else { usual.skinny_rows },
            tile_tokens: if roomy { 64 } else { usual.tile_tokens },
            ..usual
        }
    }

    /// The reference executor: a processor with the same limits, so that a program built for it
    /// crosses the same borders.
    pub fn reference() -> Self {
        Self {
            kind: DeviceKind::Cpu,
            max_buffer_bytes: 1 << 40,
            ..Self::portable_gpu()
        }
    }
}
