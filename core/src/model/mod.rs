//! Models: how a checkpoint becomes buffers on a device, and a step becomes a
//! [`Program`](twoclock_shaders::program::Program). Knows no request and no scheduler.

pub mod arena;
mod attention_out;
mod body;
pub mod compute_dtype;
pub mod decoder;
pub mod embedding;
pub mod experts;
pub mod feed_forward;
mod fusion;
pub mod head;
pub mod kv_cache_dtype;
pub mod linear;
pub mod loader;
pub mod pooling;
pub mod rope;
mod rope_tables;
mod row_fusion;
pub mod taps;
pub mod workspace;

pub use compute_dtype::{ComputeDtype, NoCoop, NumericsClass};
pub use decoder::Decoder;
pub use head::HeadPart;
pub use kv_cache_dtype::KvCacheDtype;
pub use taps::{Tap, TapBuffers, Taps, TapsError};
pub use workspace::{LayerPages, Pages, Workspace};

use twoclock_shaders::program::CountId;

/// The step's tokens.
pub const TOKENS: CountId = CountId(0);
/// Rows of the head's group.
pub const ROWS: CountId = CountId(1);
/// Prefill tiles.
pub const TILES: CountId = CountId(2);
/// Decode queries.
pub const DECODES: CountId = CountId(3);
/// Rows of the head's group if one of them filters tokens, else 0.
pub const FILTER_ROWS: CountId = CountId(4);
/// Likewise where one asks for `top_k`.
pub const COUNT_ROWS: CountId = CountId(5);
/// Likewise where one asks for `top_p`.
pub const MASS_ROWS: CountId = CountId(6);
/// Edits of single logits.
pub const EDITS: CountId = CountId(7);
/// Masks of rows.
pub const MASKS: CountId = CountId(8);
/// The step's sequences.
pub const SEQS: CountId = CountId(9);
/// The most tokens of one of them.
pub const QUERIES: CountId = CountId(10);
/// The most parts that one of the decode queries sees in the layers of a KV group.
pub const fn parts(group: usize) -> CountId {
    CountId(11 + 3 * group)
}
/// Decode queries if one of them sees several parts there, else 0.
pub const fn merges(group: usize) -> CountId {
    CountId(12 + 3 * group)
}
/// Pages copied before the step writes, in each of the layers of a KV group.
pub const fn copies(group: usize) -> CountId {
    CountId(13 + 3 * group)
}
/// How many counts a step has for a model of so many KV groups.
pub const fn num_counts(groups: usize) -> usize {
    11 + 3 * groups
}
