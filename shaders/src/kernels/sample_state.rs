//! Keeps of each sequence what it drew, so that the next step can be launched before the host has
//! seen it: last token, length, tokens left, and whether it goes on. The state of a sequence begins
//! with [`super::prepare`].

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample_state`.
    pub struct SampleStateParams {
        /// The step's row that comes first.
        pub first_row: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample_state",
    bodies: bodies!["sample_state"],
    bindings: bindings![step: Read, ids: Read, state: ReadWrite],
    params: SampleStateParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("sample_state", "sample_state").module("step", "step")
}

/// Keeps the ids drawn for `rows` rows: ids u32, one a row of the step, state u32
/// `[slots][`[`STATE_WORDS`](super::step::STATE_WORDS)`]`. No two rows are of one sequence.
pub fn dispatch(
    params: SampleStateParams,
    rows: CountId,
    step: Slice,
    ids: Slice,
    state: Slice,
) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![step, ids, state],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: rows,
                tile: 1,
            },
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0,
            flops: 0.0,
        },
    }
}
