//! What the attention kernels share: the chain that every body follows, and the work of a row.
//! Knows neither tiles nor parts in flight.
//!
//! Attention by online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
//! arXiv:2205.14135) over paged keys (Kwon et al. 2023, arXiv:2309.06180), with one chain of
//! operations for every batch, chunk, page size and split:
//!
//! - What is cached is codes times a scale a group of 32 dims ([`super::kv`]), 1 in f32 and f16.
//! - Queries are multiplied by their scale first. A score is pieces of 16 dims, each a `vec4` chain
//!   of `fma` over codes joined as (x+y)+(z+w); pieces are summed in order, s = fma(scale, piece, s).
//!   A soft cap bounds the score then, by the formula of [`super::softcap`].
//! - Keys form blocks of [`BLOCK_KEYS`], aligned to absolute position.
//!   A block stands alone: m = maximum of the scores it sees, l = Σ exp(s − m) and
//!   o = Σ exp(s − m) · v, key by key from zero, o = fma(exp(s − m) · scale, code, o). A key that a query does not see, as it
//!   comes later or lies before the query's window, takes no part, whatever its page holds.
//! - Blocks merge in order into parts of [`PART_KEYS`], parts in order into
//!   the whole, both from (m, l, o) = (−1e30, 0, 0): m' = max(m, mₙ),
//!   o' = fma(o, e(m − m'), oₙ · e(mₙ − m')), l' likewise. A block or part of which a query sees
//!   nothing is left out; blocks that lie before what any query of a workgroup sees are not read,
//!   nor are their pages.
//! - The result is o / l.

use super::kv::KvDtype;
use super::step::{BLOCK_KEYS, PART_KEYS};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::KernelKey;
use crate::program::Cost;

/// Largest head.
pub const MAX_HEAD_DIM: u32 = 256;

/// Head sizes the lint compiles.
pub(crate) const LINT_HEAD_DIMS: [u32; 7] = [16, 20, 32, 64, 96, 128, 256];

/// Ways of sharing, types and head sizes the lint compiles.
pub(crate) fn lint_parts() -> impl Iterator<Item = (Sharing, KvDtype, u32)> {
    Sharing::ALL.into_iter().flat_map(|sharing| {
        let whole = move |dim: &u32| sharing != Sharing::Subgroup8 || dim.is_multiple_of(16);
        lint_shapes()
            .filter(move |(_, dim)| whole(dim))
            .map(move |(dtype, dim)| (sharing, dtype, dim))
    })
}

/// Types and head sizes the lint compiles: all sizes of f32, and of the others one with a group cut
/// short, the usual one and the largest.
pub(crate) fn lint_shapes() -> impl Iterator<Item = (KvDtype, u32)> {
    KvDtype::ALL.into_iter().flat_map(|dtype| {
        let dims: &[u32] = match dtype {
            KvDtype::F32 => &LINT_HEAD_DIMS,
            KvDtype::F16 | KvDtype::Int8 => &[20, 64, 256],
        };
        dims.iter().map(move |&dim| (dtype, dim))
    })
}

/// Most query rows one workgroup computes.
pub(crate) const MAX_ROWS: u32 = 8;

/// How the lanes of a workgroup come by the keys that all of them read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Through workgroup memory: GPUs.
    Workgroup,
    /// Each loads all: processors.
    Uniform,
    /// Each of a subgroup of 8 or more loads a part and tells the others: processors that have them.
    Subgroup8,
    /// Likewise, two lanes a row: up to [`QUAD_ROWS`] rows.
    Quads,
}

/// Most query rows for which a row has two lanes.
const QUAD_ROWS: u32 = 4;

impl Sharing {
    pub(crate) const ALL: [Self; 3] = [Self::Workgroup, Self::Uniform, Self::Subgroup8];

    /// The same for so many rows a workgroup: few leave lanes idle.
    pub(crate) fn of_rows(self, rows: u32) -> Self {
        match self {
            Self::Subgroup8 if rows <= QUAD_ROWS => Self::Quads,
            _ => self,
        }
    }

    /// What suits a device and a head size.
    pub(crate) fn choose(caps: &Caps, head_dim: u32) -> Self {
        match (caps.kind, caps.subgroups) {
            (DeviceKind::Gpu, _) => Self::Workgroup,
            // A workgroup must be one subgroup, so its size must be known; rows of whole pieces.
            (DeviceKind::Cpu, Some((min, max)))
                if min == max && min >= MAX_ROWS && head_dim.is_multiple_of(16) =>
            {
                Self::Subgroup8
            }
            (DeviceKind::Cpu, _) => Self::Uniform,
        }
    }
}

/// A key with the slots and constants of the bodies that compute parts.
pub(crate) fn part_key(
    key: KernelKey,
    sharing: Sharing,
    dtype: KvDtype,
    head_dim: u32,
    rows: u32,
) -> KernelKey {
    let key = dtype
        .reads(chain_key(key, head_dim))
        .module("paging", "paging")
        .module("softcap", "softcap")
        .constant("ROWS", rows);
    let (two_rows, span, lanes) = match sharing {
        Sharing::Workgroup => {
            let key = key.module("part", "attention_part_workgroup");
            return key.module("store_rows", "store_rows");
        }
        Sharing::Uniform => ("two_rows_uniform", "span_lane", rows),
        Sharing::Subgroup8 => ("two_rows_subgroup8", "span_lane", MAX_ROWS),
        Sharing::Quads => ("two_rows_quad", "span_quad", 2 * QUAD_ROWS),
    };
    // Dims of the values that a lane sums together: 16 where that divides the head.
    let chunk = [4, 2, 1]
        .into_iter()
        .find(|c| (head_dim / 4).is_multiple_of(*c));
    key.module("part", "attention_part_lane")
        .module("two_rows", two_rows)
        .module("span", span)
        .constant("LANES", lanes)
        .constant("CHUNK", chunk.unwrap_or(1))
}

/// A key with the slots and constants of every attention body.
pub(crate) fn chain_key(key: KernelKey, head_dim: u32) -> KernelKey {
    assert!(
        head_dim.is_multiple_of(4) && (4..=MAX_HEAD_DIM).contains(&head_dim),
        "the model's head size {head_dim} was checked when its config was read"
    );
    key.module("step", "step")
        .module("attention", "attention")
        .constant("HEAD_DIM", head_dim)
        .constant("BLOCK_KEYS", BLOCK_KEYS)
        .constant("PART_KEYS", PART_KEYS)
}

/// Work of `rows` query rows over the same `keys` keys.
pub(crate) fn cost(dtype: KvDtype, head_dim: u32, rows: u32, keys: u32) -> Cost {
    let cached = f64::from(dtype.row_bytes(head_dim));
    let (dim, rows, keys) = (f64::from(head_dim), f64::from(rows), f64::from(keys));
    Cost {
        bytes: 2.0 * cached * keys + 8.0 * dim * rows,
        flops: 4.0 * dim * rows * keys,
    }
}
