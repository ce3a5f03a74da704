//! Sums the final hidden states of sequences, share by share: row `to` of the sums becomes row `from`
//! and `x · rstd` of the share's tokens, from a norm's output (see [`rms_norm`](super::rms_norm)) to
//! f32 `[rows][dim]`. The two rows differ, so that a step computed twice gives the same.
//!
//! The chain: `s = 0`; token after token, from the first that is pooled, `s = fma(x, rstd, s)`. It
//! goes on from share to share, so it does not depend on how a sequence is cut.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

/// Words of a share's record: its first token among the step's, how many there are, the row of the
/// sums it goes on from ([`NO_ROW`] at the beginning), the row that takes the sum.
pub const POOL_WORDS: usize = 4;
/// A sum that begins.
pub const NO_ROW: u32 = u32::MAX;

params! {
    /// Parameters of `pool_sum`.
    pub struct PoolSumParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// `vec4`s from row to row of the input.
        pub act_stride: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "pool_sum",
    bodies: bodies!["pool_sum"],
    bindings: bindings![x: Read, rstd: Read, pools: Read, sums: ReadWrite],
    params: PoolSumParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("pool_sum", "pool_sum")
}

/// Windows of `pool_sum`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// x ∘ g of the step's tokens, f32.
    pub x: Slice,
    /// f32 `[tokens]`.
    pub rstd: Slice,
    /// u32 `[shares][POOL_WORDS]`.
    pub pools: Slice,
    /// f32 `[rows][dim]`; no two shares of a step name one row.
    pub sums: Slice,
}

/// Sums so many shares.
pub fn dispatch(params: PoolSumParams, shares: CountId, buffers: Buffers) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![buffers.x, buffers.rstd, buffers.pools, buffers.sums],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim4.div_ceil(64)),
            Extent::Count {
                count: shares,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        // Of a share of 32 tokens.
        cost: Cost {
            bytes: 64.0 * 16.0 * 34.0,
            flops: 64.0 * 8.0 * 32.0,
        },
    }
}
