//! Writes a step's keys and values into their [pages](super::kv), keys and values in buffers of
//! their own. A token without a slot is written nowhere. Where scales of two tokens share a word both
//! may be written at once, by atomics.

use super::attention::lint_shapes;
use super::kv::KvDtype;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `kv_write`.
    pub struct KvWriteParams {
        /// Key/value heads.
        pub kv_heads: u32,
        /// Elements from row to row of qkv / 4.
        pub stride4: u32,
        /// First key of each row / 4.
        pub k_at4: u32,
        /// First value of each row / 4.
        pub v_at4: u32,
        /// Tokens a page.
        pub block_size: u32,
        /// Group of layers whose slots are written to.
        pub group: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "kv_write",
    bodies: bodies!["kv_write"],
    bindings: bindings![qkv: Read, step: Read, kcache: ReadWrite, vcache: ReadWrite],
    params: KvWriteParams::FIELDS,
    variants: || lint_shapes().map(|(dtype, dim)| key(dtype, dim)).collect(),
};

fn key(dtype: KvDtype, head_dim: u32) -> KernelKey {
    dtype
        .writes(KernelKey::plain("kv_write", "kv_write"))
        .module("step", "step")
        .module("halves", "halves")
        .constant("HEAD_DIM", head_dim)
}

/// Windows of `kv_write`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// f32 `[tokens][stride]`.
    pub qkv: Slice,
    /// The step buffer.
    pub step: Slice,
    /// Pages of keys.
    pub kcache: Slice,
    /// Pages of values.
    pub vcache: Slice,
    /// What the pages hold.
    pub dtype: KvDtype,
}

/// Writes the keys and values of the step's tokens to their slots; a head has `head_dim` dims, a
/// multiple of 4.
pub fn dispatch(
    head_dim: u32,
    params: KvWriteParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    let dtype = buffers.dtype;
    let stores = (head_dim / 4).div_ceil(dtype.store4());
    let stored = f64::from(4 * dtype.store4());
    let cached = f64::from(dtype.row_bytes(head_dim)) / f64::from(head_dim);
    Dispatch {
        key: key(dtype, head_dim),
        bindings: vec![buffers.qkv, buffers.step, buffers.kcache, buffers.vcache],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed((params.kv_heads * stores).div_ceil(32)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * stored * (4.0 + cached),
            flops: 0.0,
        },
    }
}
