//! The residual stream takes a sublayer's output: `x += y`, f32 `[tokens][dim]`.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `residual`.
    pub struct ResidualParams {
        /// Elements a row / 4.
        pub dim4: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "residual",
    bodies: bodies!["residual"],
    bindings: bindings![y: Read, x: ReadWrite],
    params: ResidualParams::FIELDS,
    variants: || vec![KernelKey::plain("residual", "residual")],
};

/// Adds `y` to `x` for the step's tokens.
pub fn dispatch(params: ResidualParams, tokens: CountId, y: Slice, x: Slice) -> Dispatch {
    Dispatch {
        key: KernelKey::plain("residual", "residual"),
        bindings: vec![y, x],
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
            flops: 64.0 * 4.0,
        },
    }
}
