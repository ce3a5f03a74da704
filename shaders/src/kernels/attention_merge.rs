//! Merges the parts that `attention_decode` left, in order, into the attention of each decode
//! query that has several. Chain: [`super::attention`].

use super::act::ActFormat;
use super::attention::{LINT_HEAD_DIMS, chain_key};
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `attention_merge`.
    pub struct AttentionMergeParams {
        /// Query heads.
        pub heads: u32,
        /// As in `attention_decode`.
        pub max_parts: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
        /// As in `attention_decode`.
        pub window: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "attention_merge",
    bodies: bodies!["attention_merge"],
    bindings: bindings![parts: Read, step: Read, act_out: ReadWrite],
    params: AttentionMergeParams::FIELDS,
    variants: || {
        LINT_HEAD_DIMS
            .iter()
            .flat_map(|&dim| {
                let formats = ActFormat::ALL.iter().filter(move |f| f.holds_heads(dim));
                formats.map(move |&act_format| key(act_format, dim))
            })
            .collect()
    },
};

fn key(act_format: ActFormat, head_dim: u32) -> KernelKey {
    assert!(act_format.holds_heads(head_dim), "groups straddle heads");
    let key = KernelKey::plain("attention_merge", "attention_merge");
    act_format.fill(chain_key(key, head_dim))
}

/// Windows of `attention_merge`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// What `attention_decode` wrote.
    pub parts: Slice,
    /// The step buffer.
    pub step: Slice,
    /// Rows of heads · `head_dim` elements.
    pub out: Slice,
    /// Their format.
    pub act_format: ActFormat,
}

/// The attention of those of the step's decode queries that have several parts. `queries` counts all,
/// or none where each has one part; `context` is the length the work is predicted
/// for.
///
/// # Panics
/// When `head_dim` is no multiple of 4 up to [`MAX_HEAD_DIM`](super::attention::MAX_HEAD_DIM), or one that
/// the output's format cannot [hold](ActFormat::holds_heads).
pub fn dispatch(
    head_dim: u32,
    params: AttentionMergeParams,
    queries: CountId,
    context: u32,
    buffers: Buffers,
) -> Dispatch {
    let parts = f64::from(super::attention_decode::max_parts(context, params.window));
    Dispatch {
        key: key(buffers.act_format, head_dim),
        bindings: vec![buffers.parts, buffers.step, buffers.out],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed((params.heads * head_dim.div_ceil(32)).div_ceil(32)),
            Extent::Count {
                count: queries,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 256.0 * (32.0 * parts + 16.0),
            flops: 256.0 * 20.0 * parts,
        },
    }
}
