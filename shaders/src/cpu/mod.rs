//! The reference: every kernel as plain loops over the same buffers and parameters, and an
//! executor that runs programs of them. Knows no WGSL and no GPU.
//!
//! The loops are kept close to the WGSL so that the two can be read side by side; they follow the
//! same chains of operations, with `a * b + c` rounded twice where a GPU may fuse it.

pub mod bound;
pub mod executor;

mod act;
mod attention;
mod attention_decode;
mod attention_merge;
mod attention_prefill;
mod embed;
mod fma_rate;
mod fused;
mod fused_glu;
mod fused_qkv;
mod fused_row;
mod fused_row_glu;
mod fused_row_join;
mod fused_row_qkv;
mod gather_rows;
mod glu;
mod head_norm;
mod kv;
mod kv_copy;
mod matmul;
mod matmul_coop;
mod moe_group;
mod moe_matmul;
mod moe_route;
mod moe_sum;
mod pool_sum;
mod prepare;
mod quantize;
mod residual;
mod residual_norm;
mod rms_norm;
mod rope_kv;
mod sample;
mod sample_cut;
mod sample_edit;
mod sample_mask;
mod sample_pick;
mod sample_scan;
mod sample_state;
mod softcap;
mod tap_rows;
mod weight_row;

pub use bound::Bound;
pub use executor::CpuExecutor;

use crate::kernel::KernelKey;

/// A reference kernel: key, parameter bytes, bound buffers, workgroups.
pub type CpuKernel = fn(&KernelKey, &[u8], &mut Bound<'_>, [u32; 3]);

/// Every reference kernel by name.
pub const KERNELS: &[(&str, CpuKernel)] = &[
    ("attention_decode", attention_decode::run),
    ("attention_merge", attention_merge::run),
    ("attention_prefill", attention_prefill::run),
    ("embed", embed::run),
    ("fma_rate", fma_rate::run),
    ("fused_glu", fused_glu::run),
    ("fused_qkv", fused_qkv::run),
    ("fused_row_glu", fused_row_glu::run),
    ("fused_row_join", fused_row_join::run),
    ("fused_row_qkv", fused_row_qkv::run),
    ("gather_rows", gather_rows::run),
    ("glu", glu::run),
    ("head_norm", head_norm::run),
    ("kv_copy", kv_copy::run),
    ("matmul", matmul::run),
    ("matmul_coop", matmul_coop::run),
    ("moe_group", moe_group::run),
    ("moe_matmul", moe_matmul::run),
    ("moe_route", moe_route::run),
    ("moe_sum", moe_sum::run),
    ("pool_sum", pool_sum::run),
    ("prepare", prepare::run),
    ("quantize", quantize::run),
    ("residual", residual::run),
    ("residual_norm", residual_norm::run),
    ("rms_norm", rms_norm::run),
    ("rope_kv", rope_kv::run),
    ("sample", sample::run),
    ("sample_cut", sample_cut::run),
    ("sample_edit", sample_edit::run),
    ("sample_mask", sample_mask::run),
    ("sample_pick", sample_pick::run),
    ("sample_scan", sample_scan::run),
    ("sample_state", sample_state::run),
    ("softcap", softcap::run),
    ("tap_rows", tap_rows::run),
];

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
