//! The reference: every kernel as plain loops over the same buffers and parameters, and an
//! executor that runs programs of them. Knows no WGSL and no GPU.
//!
//! The loops are kept close to the WGSL so that the two can be read side by side; they follow the
//! same chains of operations, with `a * b + c` rounded twice where a GPU may fuse it.

pub mod bound;
pub mod executor;

mod residual;
mod rms_norm;

pub use bound::Bound;
pub use executor::CpuExecutor;

use crate::kernel::KernelKey;

/// A reference kernel: key, parameter bytes, bound buffers, workgroups.
pub type CpuKernel = fn(&KernelKey, &[u8], &mut Bound<'_>, [u32; 3]);

/// Every reference kernel by name.
pub const KERNELS: &[(&str, CpuKernel)] =
    &[("residual", residual::run), ("rms_norm", rms_norm::run)];

/// The reference's multiply-add; fused only where the target has an instruction for it.
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(target_feature = "fma") {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// The chain that joins a `vec4` accumulator.
#[inline(always)]
pub(crate) fn join([x, y, z, w]: [f32; 4]) -> f32 {
    (x + y) + (z + w)
}
