//! Runs programs through wgpu: Vulkan, Metal and DX12 natively, WebGPU in a browser. The only code
//! of the engine that names a graphics API; knows no model and no reference kernel.

mod bind_groups;
mod buffers;
mod device;
mod executor;
mod pipelines;
mod read;

pub use device::{AdapterSummary, DeviceOptions, GpuDevice, adapters};
pub use executor::{Counters, SubmitBudget, WgpuExecutor};
