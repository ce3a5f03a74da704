//! One file a kernel: its parameters and bindings, which variant fits a device and a shape, and
//! its grid. Knows the shape of no model.

pub mod act;
pub mod attention;
pub mod attention_decode;
pub mod attention_merge;
pub mod attention_prefill;
pub mod embed;
pub mod fma_rate;
pub mod fused;
pub mod fused_glu;
pub mod fused_qkv;
pub mod fused_row;
pub mod fused_row_glu;
pub mod fused_row_join;
pub mod fused_row_qkv;
pub mod gather_rows;
pub mod glu;
pub mod head_norm;
pub mod kv;
pub mod kv_copy;
pub mod matmul;
pub mod matmul_coop;
mod matmul_regime;
pub mod moe_group;
pub mod moe_matmul;
pub mod moe_route;
pub mod moe_sum;
pub mod pool_sum;
pub mod prepare;
pub mod quantize;
pub mod residual;
pub mod residual_norm;
pub mod rms_norm;
pub mod rope_kv;
mod row_input;
pub mod sample;
pub mod sample_cut;
pub mod sample_edit;
pub mod sample_mask;
pub mod sample_pick;
pub mod sample_scan;
pub mod sample_state;
pub mod softcap;
pub mod step;
pub mod tap_rows;
pub mod weight;

use crate::kernel::Kernel;

/// Every kernel.
pub const ALL: &[&Kernel] = &[
    &attention_decode::KERNEL,
    &attention_merge::KERNEL,
    &attention_prefill::KERNEL,
    &embed::KERNEL,
    &fma_rate::KERNEL,
    &fused_glu::KERNEL,
    &fused_qkv::KERNEL,
    &fused_row_glu::KERNEL,
    &fused_row_join::KERNEL,
    &fused_row_qkv::KERNEL,
    &gather_rows::KERNEL,
    &glu::KERNEL,
    &head_norm::KERNEL,
    &kv_copy::KERNEL,
    &matmul::KERNEL,
    &matmul_coop::KERNEL,
    &moe_group::KERNEL,
    &moe_matmul::KERNEL,
    &moe_route::KERNEL,
    &moe_sum::KERNEL,
    &pool_sum::KERNEL,
    &prepare::KERNEL,
    &quantize::KERNEL,
    &residual::KERNEL,
    &residual_norm::KERNEL,
    &rms_norm::KERNEL,
    &rope_kv::KERNEL,
    &sample::KERNEL,
    &sample_cut::KERNEL,
    &sample_edit::KERNEL,
    &sample_mask::KERNEL,
    &sample_pick::KERNEL,
    &sample_scan::KERNEL,
    &sample_state::KERNEL,
    &softcap::KERNEL,
    &tap_rows::KERNEL,
];

/// The kernel of that name.
pub fn find(name: &str) -> Option<&'static Kernel> {
    ALL.iter().copied().find(|kernel| kernel.name == name)
}

/// The bodies of a kernel, read from `wgsl/` at build time.
macro_rules! bodies {
    ($($name:literal),* $(,)?) => {
        &[$($crate::kernel::Body {
            name: $name,
            source: include_str!(concat!("../../wgsl/", $name, ".wgsl")),
        }),*]
    };
}

/// The bindings of a kernel, in order.
macro_rules! bindings {
    ($($name:ident: $access:ident),* $(,)?) => {
        &[$($crate::kernel::BindingDef {
            name: stringify!($name),
            access: $crate::kernel::Access::$access,
        }),*]
    };
}

pub(crate) use {bindings, bodies};
