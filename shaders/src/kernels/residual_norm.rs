//! A sublayer's output, normed, joins the residual stream: `x += norm(y)`, f32 `[tokens][dim]`.
//!
//! The chain: `rstd` as [`rms_norm`](super::rms_norm) has it, then `x' = fma(y · g, rstd, x)`.

use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `residual_norm`.
    pub struct ResidualNormParams {
        /// Elements a row / 4; a row has at most [`MAX_DIM`](super::rms_norm::MAX_DIM).
        pub dim4: u32,
        /// Tokens the buffers have room for.
        pub tokens: u32,
        /// Added to the mean square.
        pub eps: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "residual_norm",
    bodies: bodies!["residual_norm_lane", "residual_norm_workgroup"],
    bindings: bindings![y: Read, g: Read, x: ReadWrite],
    params: ResidualNormParams::FIELDS,
    variants: || [DeviceKind::Cpu, DeviceKind::Gpu].map(key).into(),
};

fn key(kind: DeviceKind) -> KernelKey {
    let (body, tokens) = match kind {
        // A lane a token: nothing crosses lanes.
        DeviceKind::Cpu => ("residual_norm_lane", 8),
        DeviceKind::Gpu => ("residual_norm_workgroup", 1),
    };
    KernelKey::plain("residual_norm", body).constant("TOKENS", tokens)
}

/// Windows of `residual_norm`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The sublayer's output, f32 `[tokens][dim]`.
    pub y: Slice,
    /// Gains, f32 `[dim]`.
    pub g: Slice,
    /// The residual stream, f32 `[tokens][dim]`.
    pub x: Slice,
}

/// Adds the normed rows of the step's tokens.
pub fn dispatch(
    caps: &Caps,
    params: ResidualNormParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    let key = key(caps.kind);
    let tile = key.value("TOKENS");
    let elements = f64::from(tile * params.dim4 * 4);
    Dispatch {
        key,
        bindings: vec![buffers.y, buffers.g, buffers.x],
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
            bytes: 20.0 * elements,
            flops: 5.0 * elements,
        },
    }
}
