//! Shared pieces of the tests that see the whole workspace: a device to test on, random inputs,
//! and one dispatch run on any executor.

mod case;
mod device;
pub mod fuzz;
mod gguf_parts;
mod golden;
mod limited;
mod logits_bits;
mod losing;
mod noise;
mod plain_decoder;
mod real_model;
mod rounded;
mod synthetic;
mod weights;

pub use case::{Case, Input, MakeDispatches, assert_close};
pub use device::gpu;
pub use gguf_parts::gguf_parts;
pub use golden::{Expected, GoldenDir, MemoryFiles, golden, golden_bytes};
pub use limited::Limited;
pub use logits_bits::{LogitsBits, LogitsRows};
pub use losing::{Losing, Loss};
pub use noise::Noise;
pub use plain_decoder::{PlainDecoder, PlainStates};
pub use real_model::{Reference, Share, generate, model_of_variable};
pub use rounded::{rounded, widened};
pub use synthetic::Synthetic;
pub use weights::Weights;
