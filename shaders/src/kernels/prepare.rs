//! The first kernel of a step: fills in what only the device knows. Of each sequence the upload gives
//! the length and the ids, or leaves them to the state that earlier steps keep of it
//! ([`super::sample_state`]); positions, slots and the length of the context follow.
//!
//! A sequence that is known to have ended writes nothing: its slots are [`super::step::NO_SLOT`].

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `prepare`.
    pub struct PrepareParams {
        /// KV groups.
        pub groups: u32,
        /// Tokens a page.
        pub block_size: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "prepare",
    bodies: bodies!["prepare"],
    bindings: bindings![step: ReadWrite, state: ReadWrite],
    params: PrepareParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("prepare", "prepare").module("step", "step")
}

/// Prepares a step of `seqs` sequences with up to `queries` tokens each: step buffer, and state u32
/// `[slots][`[`STATE_WORDS`](super::step::STATE_WORDS)`]`.
pub fn dispatch(
    params: PrepareParams,
    queries: CountId,
    seqs: CountId,
    step: Slice,
    state: Slice,
) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![step, state],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: queries,
                tile: 64,
            },
            Extent::Count {
                count: seqs,
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
