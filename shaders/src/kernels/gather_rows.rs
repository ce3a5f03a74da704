//! Collects the rows whose logits are wanted: `out[row] = x[token of row]`, f32 `[..][dim]`, so that
//! the head computes those alone.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `gather_rows`.
    pub struct GatherRowsParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// The step's row that comes first.
        pub first_row: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "gather_rows",
    bodies: bodies!["gather_rows"],
    bindings: bindings![x: Read, step: Read, out: ReadWrite],
    params: GatherRowsParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("gather_rows", "gather_rows").module("step", "step")
}

/// Collects `rows` rows of `x` into `out`.
pub fn dispatch(
    params: GatherRowsParams,
    rows: CountId,
    x: Slice,
    step: Slice,
    out: Slice,
) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![x, step, out],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim4.div_ceil(64)),
            Extent::Count {
                count: rows,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 32.0,
            flops: 0.0,
        },
    }
}
