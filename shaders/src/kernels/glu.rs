//! Gated linear unit with `SiLU` (Shazeer 2020, arXiv:2002.05202): `out = silu(gate) · up`, from rows
//! f32 `[tokens][2 dim]` (gate, then up) into the next matmul's input layout.

use super::act::ActLayout;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `glu`.
    pub struct GluParams {
        /// Elements of the result / 4.
        pub dim4: u32,
        /// Stride of the output's layout.
        pub act_stride: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "glu",
    bodies: bodies!["glu"],
    bindings: bindings![gate_up: Read, act_out: ReadWrite],
    params: GluParams::FIELDS,
    variants: || ActLayout::ALL.iter().map(|&layout| key(layout)).collect(),
};

fn key(layout: ActLayout) -> KernelKey {
    KernelKey::plain("glu", "glu").module("act", layout.module())
}

/// Gates the step's tokens.
pub fn dispatch(
    layout: ActLayout,
    params: GluParams,
    tokens: CountId,
    gate_up: Slice,
    out: Slice,
) -> Dispatch {
    Dispatch {
        key: key(layout),
        bindings: vec![gate_up, out],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim4.div_ceil(64)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 48.0,
            flops: 64.0 * 20.0,
        },
    }
}
