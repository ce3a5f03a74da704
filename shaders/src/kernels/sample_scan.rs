//! Counts what decides the cut under which a row's tokens are not drawn: a pass over the logits of
//! every row that asks for `min_p`, `top_k` or `top_p`. [`super::sample_cut`] concludes from each pass.
//!
//! Each of the three keeps the tokens whose logit reaches a threshold, so together they are one: the
//! cut. It is found without sorting, as a radix select over [keys](order_key) that order as the logits
//! do, eight bits a pass, most significant first:
//!
//! 1. [`Stage::Max`]: the largest key. `min_p`: the cut is at least max + T · ln(`min_p`).
//! 2. [`Stage::Count`], four passes: tokens by digit, of those that reach the cut and share the digits
//!    found so far. The k-th largest becomes the cut; what equals it stays.
//! 3. [`Stage::Mass`], four passes: likewise their probability mass, e^((x − max) / T) in fixed point
//!    with 44 fractional bits. The cut becomes the lowest value above which less than p of the mass
//!    lies; what equals it stays.
//!
//! Sums are of integers, so their order is free and a row's cut does not depend on what else there is.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample_scan`.
    pub struct SampleScanParams {
        /// Logits a row.
        pub vocab: u32,
        /// The step's row that comes first.
        pub first_row: u32,
        /// Digit of the key, 0 the most significant.
        pub digit: u32,
    }
}

/// Lanes that share a row's chunk.
pub const LANES: u32 = 64;
/// Ids of one workgroup.
pub const CHUNK: u32 = 4096;

/// Digits of a key.
pub const DIGITS: u32 = 4;
/// Values of a digit.
pub const BINS: usize = 256;
/// Word of a row's state: the largest key, while it is looked for.
pub const MAX: usize = 0;
/// Word: key of the cut; tokens below are not drawn.
pub const CUT: usize = 1;
/// Word: digits found so far.
pub const PREFIX: usize = 2;
/// Word: how many more of the largest to find among those that share the prefix; 0 finds none.
pub const RANK: usize = 3;
/// Two words, low first: mass above those that share the prefix.
pub const ABOVE: usize = 4;
/// Two words: mass of which less must lie above the cut.
pub const TARGET: usize = 6;
/// Word: the largest logit, f32.
pub const TOP: usize = 8;
/// Words of the state, before the bins.
pub const STATE_WORDS: usize = 12;
/// Words of a row: state, then two a bin, low first. All are zero before the first step.
pub const ROW_WORDS: usize = STATE_WORDS + 2 * BINS;
/// No logit under this is drawn: it is that of a banned token.
pub const FLOOR: f32 = -3.0e38;

/// What a pass looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The largest logit.
    Max,
    /// Tokens by digit.
    Count,
    /// Probability mass by digit.
    Mass,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Max, Self::Count, Self::Mass];

    /// The stage of a key made by [`Self::key`].
    pub fn of(key: &KernelKey) -> Self {
        Self::ALL[key.value("STAGE") as usize]
    }

    /// Names it in a key.
    #[must_use]
    pub fn key(self, key: KernelKey) -> KernelKey {
        key.constant("STAGE", self as u32)
    }
}

/// Orders as the numbers do, as unsigned integers; both zeros are one.
pub fn order_key(x: f32) -> u32 {
    let bits = if x == 0.0 { 0 } else { x.to_bits() };
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// The number of that key.
pub fn order_value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 {
        key & !(1 << 31)
    } else {
        !key
    })
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample_scan",
    bodies: bodies!["sample_scan"],
    bindings: bindings![logits: Read, step: Read, cut: ReadWrite],
    params: SampleScanParams::FIELDS,
    variants: || Stage::ALL.map(key).into(),
};

fn key(stage: Stage) -> KernelKey {
    let key = KernelKey::plain("sample_scan", "sample_scan")
        .module("step", "step")
        .module("cut", "cut")
        .module("order_key", "order_key")
        .constant("LANES", LANES)
        .constant("CHUNK", CHUNK);
    stage.key(key)
}

/// One pass over `rows` rows: logits f32 `[rows][vocab]`, cut u32 `[rows]` of [`ROW_WORDS`].
pub fn dispatch(
    stage: Stage,
    params: SampleScanParams,
    rows: CountId,
    logits: Slice,
    step: Slice,
    cut: Slice,
) -> Dispatch {
    Dispatch {
        key: key(stage),
        bindings: vec![logits, step, cut],
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
            flops: 20.0 * f64::from(CHUNK),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_numbers_do() {
        let numbers = [f32::MIN, -1.5, -1e-40, 0.0, 1e-40, 1.0, 1.5, f32::MAX];
        assert!(numbers.map(order_key).is_sorted());
        assert_eq!(numbers.map(|x| order_value(order_key(x))), numbers);
        assert_eq!(order_key(-0.0), order_key(0.0));
    }
}
