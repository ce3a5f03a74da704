//! Bans the tokens that a row's mask leaves out before one is drawn: those that would leave a grammar.
//!
//! A mask is a record of [`record_words`] words: the row in its group, then bit `id % 32` of word
//! `id / 32` for every id that may be drawn. It comes after [`super::sample_edit`], so that no penalty
//! lifts what it bans; the logits end as if it had come first and banned with −∞. Rows without a mask
//! meet no workgroup.

use super::sample_edit::BANNED;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample_mask`.
    pub struct SampleMaskParams {
        /// Logits a row.
        pub vocab: u32,
        /// Words of a record.
        pub record: u32,
        /// What becomes of a banned token's logit: [`BANNED`].
        pub banned: f32,
    }
}

/// Lanes that share a row's chunk of [`CHUNK`] ids.
pub const LANES: u32 = 64;
/// Ids of one workgroup.
pub const CHUNK: u32 = 1024;

/// Words of a mask and its row.
pub fn record_words(vocab: u32) -> u32 {
    1 + vocab.div_ceil(32)
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample_mask",
    bodies: bodies!["sample_mask"],
    bindings: bindings![masks: Read, logits: ReadWrite],
    params: SampleMaskParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("sample_mask", "sample_mask")
        .constant("LANES", LANES)
        .constant("CHUNK", CHUNK)
}

/// Applies the first `masks` records of `list`, each of another row, to logits f32 `[rows][vocab]`.
pub fn dispatch(vocab: u32, masks: CountId, list: Slice, logits: Slice) -> Dispatch {
    let params = SampleMaskParams {
        vocab,
        record: record_words(vocab),
        banned: BANNED,
    };
    Dispatch {
        key: key(),
        bindings: vec![list, logits],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(vocab.div_ceil(CHUNK)),
            Extent::Count {
                count: masks,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 4.0 * f64::from(CHUNK),
            flops: 2.0 * f64::from(CHUNK),
        },
    }
}
