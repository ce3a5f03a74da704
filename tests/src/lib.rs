//! Shared pieces of the tests that see the whole workspace: a device to test on, random inputs,
//! and one dispatch run on any executor.

mod case;
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

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};

/// The device under test: the best adapter there is, opened once a process.
///
/// # Panics
/// When there is none: these tests are about a device, software Vulkan included.
pub fn gpu() -> MutexGuard<'static, WgpuExecutor> {
    static GPU: OnceLock<Mutex<WgpuExecutor>> = OnceLock::new();
    GPU.get_or_init(|| {
        let device = pollster::block_on(GpuDevice::open(DeviceOptions::default()))
            .expect("a Vulkan device; tests/run.sh installs a software one");
        Mutex::new(WgpuExecutor::new(device))
    })
    .lock()
    .unwrap_or_else(PoisonError::into_inner)
}
