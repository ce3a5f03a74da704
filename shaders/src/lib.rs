//! Kernels in WGSL, their references in plain Rust, and the executors that run programs of them.
//!
//! Imports go one way: `kernel link tuning caps program executor recording` < `kernels` < `cpu` | `gpu`, and
//! the last two never see each other; `twin` compares any executor with `cpu`. Knows no model, no request and no file.

pub mod caps;
pub mod executor;
pub mod kernel;
pub mod link;
pub mod program;
pub mod recording;
pub mod tuning;

pub mod kernels;

pub mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod twin;
