//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in place on the query and key
//! heads of each row.
//!
//! Angles come from a table of (cos, sin), one entry a position and rotary pair, made on the host
//! so that long positions keep their accuracy. A pair (a, b) becomes
//! `fma(a, cos, −(b·sin))`, `fma(b, cos, a·sin)`.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `rope`.
    pub struct RopeParams {
        /// Heads to turn, from the start of each row.
        pub heads: u32,
        /// Elements a head.
        pub head_dim: u32,
        /// Rotary pairs a head; the rest of the head stays.
        pub pairs: u32,
        /// Elements from row to row.
        pub stride: u32,
    }
}

/// How pairs lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// Pair `i` is dimensions `i` and `i + pairs`.
    Halves,
    /// Pair `i` is dimensions `2 i` and `2 i + 1`.
    Interleaved,
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "rope",
    bodies: bodies!["rope"],
    bindings: bindings![table: Read, step: Read, x: ReadWrite],
    params: RopeParams::FIELDS,
    variants: || vec![key(Pairing::Halves), key(Pairing::Interleaved)],
};

fn key(pairing: Pairing) -> KernelKey {
    KernelKey::plain("rope", "rope")
        .module("step", "step")
        .module(
            "pairing",
            match pairing {
                Pairing::Halves => "pairing_halves",
                Pairing::Interleaved => "pairing_interleaved",
            },
        )
}

/// Windows of `rope`: table f32 `[positions][pairs][2]`, the step buffer, x f32
/// `[tokens][stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// (cos, sin) by position and pair.
    pub table: Slice,
    /// The step buffer.
    pub step: Slice,
    /// Rows whose first heads are turned.
    pub x: Slice,
}

/// Turns the heads of the step's tokens by their positions.
pub fn dispatch(
    pairing: Pairing,
    params: RopeParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    Dispatch {
        key: key(pairing),
        bindings: vec![buffers.table, buffers.step, buffers.x],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed((params.heads * params.pairs).div_ceil(64)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 24.0,
            flops: 64.0 * 6.0,
        },
    }
}
