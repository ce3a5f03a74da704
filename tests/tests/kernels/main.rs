//! Every kernel on the device under test against its reference, on random inputs and odd shapes.

#![allow(missing_docs, reason = "a test binary has no public surface")]

mod attention;
mod attention_bodies;
mod attention_formats;
mod attention_perf;
mod attention_step;
mod embed;
mod fma_rate;
mod fused;
mod fused_row;
mod gather_rows;
mod glu;
mod head_norm;
mod jit;
mod joined;
mod kv_copy;
mod matmul;
mod matmul_coop;
mod matmul_perf;
mod matmul_shapes;
mod moe;
mod moe_group;
mod moe_matmul;
mod pool_sum;
mod prepare;
mod quantize;
mod residual;
mod residual_norm;
mod rms_norm;
mod rope_kv;
mod sample;
mod sample_filter;
mod sample_golden;
mod sample_mask;
mod sample_pick;
mod softcap;
mod step;
mod tap_rows;
