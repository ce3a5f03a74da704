//! Root-mean-square norm (Zhang & Sennrich 2019, arXiv:1910.07467), split as the matmul after it
//! wants: `out = x ∘ g` in the matmul's input format, and `rstd` apart, which the matmul multiplies in
//! last. In halves, whose range is small, `out = (x ∘ g) · rstd`, and the matmul multiplies nothing.
//!
//! The chain: Σx² in slots of 32 consecutive elements, each a `vec4` chain of `fma` joined as
//! (x+y)+(z+w); slots summed in order; `rstd = 1 / sqrt(Σ / dim + eps)`.

use super::act::ActFormat;
use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `rms_norm`.
    pub struct RmsNormParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
        /// Added to the mean square.
        pub eps: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "rms_norm",
    bodies: bodies!["rms_norm_lane", "rms_norm_workgroup"],
    bindings: bindings![x: Read, g: Read, act_out: ReadWrite, rstd: ReadWrite],
    params: RmsNormParams::FIELDS,
    variants: || {
        ActFormat::ALL
            .iter()
            .flat_map(|&act_format| {
                [DeviceKind::Cpu, DeviceKind::Gpu].map(|kind| key(kind, act_format))
            })
            .collect()
    },
};

/// Most elements a row.
pub const MAX_DIM: u32 = 32 * 1024;

fn key(kind: DeviceKind, act_format: ActFormat) -> KernelKey {
    let key = match kind {
        // A lane a token: nothing crosses lanes.
        DeviceKind::Cpu => KernelKey::plain("rms_norm", "rms_norm_lane").constant("TOKENS", 8),
        DeviceKind::Gpu => KernelKey::plain("rms_norm", "rms_norm_workgroup").constant("TOKENS", 1),
    };
    let key = key.module("squares", "squares").module("slot", "norm_slot");
    act_format.fill(key.constant("SCALED", u32::from(act_format.takes_rstd())))
}

/// Windows of `rms_norm`: x f32 `[tokens][dim]`, g f32 `[dim]`, out in its format, rstd f32
/// `[tokens]`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Input rows.
    pub x: Slice,
    /// Gains.
    pub g: Slice,
    /// x ∘ g, or that times `rstd`.
    pub out: Slice,
    /// Reciprocal of the root mean square.
    pub rstd: Slice,
}

/// The norm of `tokens` rows of `dim` elements (a multiple of 4, at most [`MAX_DIM`]).
pub fn dispatch(
    caps: &Caps,
    act_format: ActFormat,
    params: RmsNormParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    let key = key(caps.kind, act_format);
    let tile = key.value("TOKENS");
    let elements = f64::from(tile * params.dim4 * 4);
    Dispatch {
        key,
        bindings: vec![buffers.x, buffers.g, buffers.out, buffers.rstd],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: tokens,
                tile,
            },
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 12.0 * elements,
            flops: 3.0 * elements,
        },
    }
}
