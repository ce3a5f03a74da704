//! Models: how a checkpoint becomes buffers on a device, and a step becomes a
//! [`Program`](twoclock_shaders::program::Program). Knows no request and no scheduler.

pub mod arena;
pub mod decoder;
pub mod embedding;
pub mod experts;
pub mod feed_forward;
pub mod head;
pub mod linear;
pub mod loader;
pub mod rope;
pub mod workspace;

pub use decoder::Decoder;
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
/// The most parts that one of the decode queries sees in the layers of a KV group.
pub const fn parts(group: usize) -> CountId {
    CountId(4 + 2 * group)
}
/// Pages copied before the step writes, in each of the layers of a KV group.
pub const fn copies(group: usize) -> CountId {
    CountId(5 + 2 * group)
}
/// How many counts a step has for a model of so many KV groups.
pub const fn num_counts(groups: usize) -> usize {
    4 + 2 * groups
}
