//! Draws a token from each row of logits, first half: every lane takes the best of the ids it owns.
//! [`super::sample_pick`] takes the best of the lanes.
//!
//! At temperature 0 the score of a token is its logit. Above, it is `logit / temperature + g` with
//! Gumbel noise g = −ln(−ln u), whose maximum is a draw from the softmax (Gumbel 1954; Maddison et
//! al. 2014, arXiv:1411.0030). u is a hash of (seed, position, token): the same seed draws the same
//! token in any batch. On equal scores the lower id wins, so the order of comparing is free.
//!
//! Where the row asks for it, tokens whose logit is under the cut that [`super::sample_scan`] and
//! [`super::sample_cut`] found take no part.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample`.
    pub struct SampleParams {
        /// Logits a row.
        pub vocab: u32,
        /// The step's row that comes first.
        pub first_row: u32,
    }
}

/// Lanes that share a row's chunk of [`CHUNK`] ids.
pub const LANES: u32 = 64;
/// Ids of one workgroup.
pub const CHUNK: u32 = 4096;

/// Candidates a row leaves for [`super::sample_pick`], two words each: score, id.
pub fn candidates(vocab: u32) -> u32 {
    vocab.div_ceil(CHUNK) * LANES
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample",
    bodies: bodies!["sample"],
    bindings: bindings![logits: Read, step: Read, cut: Read, best: ReadWrite],
    params: SampleParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("sample", "sample")
        .module("step", "step")
        .module("rng", "rng")
        .module("cut", "cut")
        .module("order_key", "order_key")
        .constant("LANES", LANES)
        .constant("CHUNK", CHUNK)
}

/// Candidates of `rows` rows: logits f32 `[rows][vocab]`, cut u32 `[rows]` of
/// [`super::sample_scan::ROW_WORDS`], best `[rows][candidates][score, id]`.
pub fn dispatch(
    params: SampleParams,
    rows: CountId,
    logits: Slice,
    step: Slice,
    cut: Slice,
    best: Slice,
) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![logits, step, cut, best],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.vocab.div_ceil(CHUNK)),
            Extent::Count {
                count: rows,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 4.0 * f64::from(CHUNK),
            flops: 40.0 * f64::from(CHUNK),
        },
    }
}
