//! A linear layer's bias: `y += b` over part of each row, f32 `[tokens][stride]`.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `add_bias`.
    pub struct AddBiasParams {
        /// Elements of the bias.
        pub dim: u32,
        /// Elements from row to row of y.
        pub stride: u32,
        /// First element of each row the bias goes to.
        pub offset: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "add_bias",
    bodies: bodies!["add_bias"],
    bindings: bindings![bias: Read, y: ReadWrite],
    params: AddBiasParams::FIELDS,
    variants: || vec![KernelKey::plain("add_bias", "add_bias")],
};

/// Adds `bias` to the rows of `y` for the step's tokens.
pub fn dispatch(params: AddBiasParams, tokens: CountId, bias: Slice, y: Slice) -> Dispatch {
    Dispatch {
        key: KernelKey::plain("add_bias", "add_bias"),
        bindings: vec![bias, y],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim.div_ceil(64)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 12.0,
            flops: 64.0,
        },
    }
}
