//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864) of a step's queries, in place, and of
//! its keys as they are written into their [pages](super::kv); values are written beside them. Keys and
//! values have buffers of their own. A token without a slot is written nowhere. Where scales of two
//! tokens share a word both may be written at once, by atomics.
//!
//! Angles come from a table of (cos, sin), one entry a position and rotary pair, made on the host
//! so that long positions keep their accuracy. A pair (a, b) becomes
//! `fma(a, cos, −(b·sin))`, `fma(b, cos, a·sin)`.

use super::attention::lint_shapes;
use super::kv::KvDtype;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `rope_kv`.
    pub struct RopeKvParams {
        /// Query heads, from the start of each row. Behind them lie the key heads, then the value heads.
        pub heads: u32,
        /// Key/value heads.
        pub kv_heads: u32,
        /// Rotary pairs a head; the rest of the head stays. 0 where nothing is turned.
        pub pairs: u32,
        /// Elements from row to row / 4.
        pub stride4: u32,
        /// Tokens a page.
        pub block_size: u32,
        /// Group of layers whose slots are written to.
        pub group: u32,
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

impl Pairing {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Halves, Self::Interleaved];

    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Halves => "pairing_halves",
            Self::Interleaved => "pairing_interleaved",
        }
    }

    /// That of a variant.
    pub(crate) fn of(key: &KernelKey) -> Self {
        if key.slot("pairing") == Some(Self::Interleaved.module()) {
            Self::Interleaved
        } else {
            Self::Halves
        }
    }

    /// The dimensions of a pair.
    pub(crate) fn dims(self, pair: usize, pairs: usize) -> (usize, usize) {
        match self {
            Self::Halves => (pair, pair + pairs),
            Self::Interleaved => (2 * pair, 2 * pair + 1),
        }
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "rope_kv",
    bodies: bodies!["rope_kv"],
    bindings: bindings![
        table: Read,
        step: Read,
        qkv: ReadWrite,
        kcache: ReadWrite,
        vcache: ReadWrite
    ],
    params: RopeKvParams::FIELDS,
    variants: || {
        lint_shapes()
            .flat_map(|(dtype, dim)| Pairing::ALL.map(|pairing| key(pairing, dtype, dim)))
            .collect()
    },
};

fn key(pairing: Pairing, dtype: KvDtype, head_dim: u32) -> KernelKey {
    dtype
        .writes(KernelKey::plain("rope_kv", "rope_kv"))
        .module("step", "step")
        .module("halves", "halves")
        .module("pairing", pairing.module())
        .constant("HEAD_DIM", head_dim)
}

/// Windows of `rope_kv`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// (cos, sin) by position and pair, f32 `[positions][pairs][2]`, where something is turned.
    pub table: Option<Slice>,
    /// The step buffer.
    pub step: Slice,
    /// f32 `[tokens][stride]`. Its keys stay as they are.
    pub qkv: Slice,
    /// Pages of keys.
    pub kcache: Slice,
    /// Pages of values.
    pub vcache: Slice,
    /// What the pages hold.
    pub dtype: KvDtype,
}

/// Turns the step's queries by their positions, and writes its keys and values to their slots; a head has
/// `head_dim` dims, a multiple of 4.
pub fn dispatch(
    pairing: Pairing,
    head_dim: u32,
    params: RopeKvParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    let dtype = buffers.dtype;
    let stores = (head_dim / 4).div_ceil(dtype.store4());
    let stored = f64::from(4 * dtype.store4());
    let cached = f64::from(dtype.row_bytes(head_dim)) / f64::from(head_dim);
    let query_groups = (params.heads * params.pairs).div_ceil(64);
    let store_groups = (params.kv_heads * stores).div_ceil(64);
    Dispatch {
        key: key(pairing, dtype, head_dim),
        bindings: vec![
            // Where nothing is turned nothing is read.
            buffers.table.unwrap_or(buffers.step),
            buffers.step,
            buffers.qkv,
            buffers.kcache,
            buffers.vcache,
        ],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(query_groups + store_groups),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 128.0 * stored * (8.0 + cached),
            flops: 64.0 * 6.0,
        },
    }
}
