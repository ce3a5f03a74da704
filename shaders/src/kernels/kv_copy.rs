//! Copies whole pages of keys and values to other pages of the same layer, before a step writes: a
//! sequence that goes on in a page others hold writes into a copy of its own. Pages are words,
//! whatever their type.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `kv_copy`.
    pub struct KvCopyParams {
        /// Bytes a page of keys, and as many of values / 16.
        pub page16: u32,
        /// Group of layers whose copies are made.
        pub group: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "kv_copy",
    bodies: bodies!["kv_copy"],
    bindings: bindings![step: Read, kcache: ReadWrite, vcache: ReadWrite],
    params: KvCopyParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("kv_copy", "kv_copy").module("step", "step")
}

/// Windows of `kv_copy`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The step buffer.
    pub step: Slice,
    /// Pages of keys.
    pub kcache: Slice,
    /// Pages of values.
    pub vcache: Slice,
}

/// Makes the step's copies of a group. No page is read by one and written by another.
pub fn dispatch(params: KvCopyParams, copies: CountId, buffers: Buffers) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![buffers.step, buffers.kcache, buffers.vcache],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.page16.div_ceil(64)),
            Extent::Count {
                count: copies,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 64.0,
            flops: 0.0,
        },
    }
}
