//! Joins what a token's experts gave: `out = Σ weight · y`, from f32 `[tokens][chosen][dim]` and a
//! route (see [`moe_route`](super::moe_route)) to f32 `[tokens][dim]`.
//!
//! The chain: `s = 0`; expert after expert in the route's order `s = fma(weight, y, s)`.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `moe_sum`.
    pub struct MoeSumParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// Experts a token went to.
        pub chosen: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "moe_sum",
    bodies: bodies!["moe_sum"],
    bindings: bindings![y: Read, route: Read, out: ReadWrite],
    params: MoeSumParams::FIELDS,
    variants: || vec![KernelKey::plain("moe_sum", "moe_sum")],
};

/// Windows of `moe_sum`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Outputs of the experts.
    pub y: Slice,
    /// Experts and weights.
    pub route: Slice,
    /// Their sum.
    pub out: Slice,
}

/// Sums over the experts of the step's tokens.
pub fn dispatch(params: MoeSumParams, tokens: CountId, buffers: Buffers) -> Dispatch {
    let elements = 256.0 * f64::from(params.chosen);
    Dispatch {
        key: KernelKey::plain("moe_sum", "moe_sum"),
        bindings: vec![buffers.y, buffers.route, buffers.out],
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
            bytes: 4.0 * elements + 1024.0,
            flops: 2.0 * elements,
        },
    }
}
