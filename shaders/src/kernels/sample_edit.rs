//! Changes single logits before a token is drawn: biases, penalties and bans, as sparse lists.
//!
//! An edit is four words: index of the logit in its group of rows (the top bit bans the token), bias,
//! repetition penalty r (1 for none), and what frequency and presence take off. In this order:
//! `x = x + bias`, then `x / r` where x > 0 and `x · r` elsewhere, then `x − minus`. The first record
//! of the buffer holds their number. No two edits name the same logit, so their order is free.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample_edit`.
    pub struct SampleEditParams {
        /// What becomes of a banned token's logit: [`BANNED`].
        pub banned: f32,
    }
}

/// Logit of a token that may not be drawn.
pub const BANNED: f32 = -3.4e38;
/// Words of an edit.
pub const EDIT_WORDS: usize = 4;
/// Bit of an edit's first word that bans its token.
pub const BAN: u32 = 1 << 31;
/// Edits of one workgroup.
pub const LANES: u32 = 64;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample_edit",
    bodies: bodies!["sample_edit"],
    bindings: bindings![edits: Read, logits: ReadWrite],
    params: SampleEditParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("sample_edit", "sample_edit").constant("LANES", LANES)
}

/// Applies a list of `edits` records, its first not counted, to logits f32 `[rows][vocab]`.
pub fn dispatch(edits: CountId, list: Slice, logits: Slice) -> Dispatch {
    let params = SampleEditParams { banned: BANNED };
    Dispatch {
        key: key(),
        bindings: vec![list, logits],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: edits,
                tile: LANES,
            },
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 24.0 * f64::from(LANES),
            flops: 5.0 * f64::from(LANES),
        },
    }
}
