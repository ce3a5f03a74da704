//! Writes a step's keys and values into their pages: f32 `[page][kv_head][token][dim]`, keys and
//! values in buffers of their own. A token without a slot is written nowhere.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `kv_write`.
    pub struct KvWriteParams {
        /// Key/value heads.
        pub kv_heads: u32,
        /// Elements a head / 4.
        pub head_dim4: u32,
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
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("kv_write", "kv_write").module("step", "step")
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
}

/// Writes the keys and values of the step's tokens to their slots.
pub fn dispatch(params: KvWriteParams, tokens: CountId, buffers: Buffers) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![buffers.qkv, buffers.step, buffers.kcache, buffers.vcache],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed((params.kv_heads * params.head_dim4).div_ceil(32)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 32.0 * 64.0,
            flops: 0.0,
        },
    }
}
