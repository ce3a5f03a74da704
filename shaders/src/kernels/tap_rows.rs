//! Records rows of the step's tokens for whoever reads them later: `out = x`, or, of a row that went
//! through a norm, `out = x · rstd`; f32 `[tokens][dim]`.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `tap_rows`.
    pub struct TapRowsParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// `vec4`s from row to row of the input.
        pub act_stride: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "tap_rows",
    bodies: bodies!["tap_rows"],
    bindings: bindings![x: Read, rstd: Read, out: ReadWrite],
    params: TapRowsParams::FIELDS,
    variants: || [false, true].map(key).into(),
};

fn key(normed: bool) -> KernelKey {
    KernelKey::plain("tap_rows", "tap_rows").constant("NORMED", u32::from(normed))
}

/// Windows of `tap_rows`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Rows.
    pub x: Slice,
    /// Of each row, f32 `[tokens]`; read only where the rows are normed.
    pub rstd: Slice,
    /// Where they are recorded.
    pub out: Slice,
}

/// Records the rows of the step's tokens; `normed` ones are multiplied by their `rstd`.
pub fn dispatch(
    normed: bool,
    params: TapRowsParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    Dispatch {
        key: key(normed),
        bindings: vec![buffers.x, buffers.rstd, buffers.out],
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
            bytes: 64.0 * 32.0,
            flops: 64.0 * 4.0,
        },
    }
}
