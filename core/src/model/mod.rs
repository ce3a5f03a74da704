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
pub use workspace::{Pages, Workspace};

use twoclock_shaders::program::CountId;

/// The step's tokens.
pub const TOKENS: CountId = CountId(0);
/// Rows of the head's group.
pub const ROWS: CountId = CountId(1);
/// Prefill tiles.
pub const TILES: CountId = CountId(2);
/// Decode queries.
pub const DECODES: CountId = CountId(3);
/// Parts of the longest context among the decode queries.
pub const PARTS: CountId = CountId(4);
/// How many counts a step has.
pub const NUM_COUNTS: usize = 5;
