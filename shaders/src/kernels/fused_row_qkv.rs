//! Queries, keys and values of a norm's product, rotary embedding and the writing of pages in one, for steps
//! of one token on processors: the bits of [`matmul`](super::matmul) and [`rope_kv`](super::rope_kv) one
//! after the other. Rows are heads of queries, then of keys, then of values. See
//! [`fused_row`].

use super::fused_qkv::{Buffers, Heads};
use super::fused_row::{self, RowMatrix};
use super::kv::KvDtype;
use super::rope_kv::Pairing;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch};

params! {
    /// Parameters of `fused_row_qkv`.
    pub struct FusedRowQkvParams {
        /// Query heads.
        pub heads: u32,
        /// Key/value heads.
        pub kv_heads: u32,
        /// Elements a head.
        pub head_dim: u32,
        /// Rotary pairs a head.
        pub pairs: u32,
        /// Groups of 32 a row.
        pub groups: u32,
        /// Stride of the input's format.
        pub act_stride: u32,
        /// First word of the bias; `u32::MAX` where there is none.
        pub bias: u32,
        /// First chunk of the sums of squares in the input.
        pub slots4: u32,
        /// Added to the mean square.
        pub eps: f32,
        /// First word of the rotary table.
        pub table: u32,
        /// Tokens a page.
        pub block_size: u32,
        /// Group of layers whose slots are written to.
        pub kv_group: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "fused_row_qkv",
    bodies: bodies!["fused_row_qkv"],
    bindings: bindings![
        act: Read,
        w: Read,
        ws: Read,
        constants: Read,
        step: Read,
        qkv: ReadWrite,
        kcache: ReadWrite,
        vcache: ReadWrite
    ],
    params: FusedRowQkvParams::FIELDS,
    variants: || {
        let dtypes = [KvDtype::F16, KvDtype::F32];
        fused_row::formats()
            .filter_map(|(i, format, act_format)| {
                let key = fused_row::normed_key(&KERNEL, format, act_format, PACKS);
                with(key, Pairing::ALL[i / 2 % 2], dtypes[i / 4 % 2])
            })
            .collect()
    },
};

/// Of a lane.
const PACKS: u32 = 1;

fn with(key: KernelKey, pairing: Pairing, dtype: KvDtype) -> Option<KernelKey> {
    let key = key
        .module("step", "step")
        .module("pairing", pairing.module())
        .module("heads", "heads");
    Some(key.module("kv", dtype.pair_module()?))
}

/// Queries of the step's token, and its keys and values in their pages; `None` where pages or pairs are not
/// such that a lane can write its rows.
pub fn dispatch(
    matrix: &RowMatrix,
    heads: &Heads,
    eps: f32,
    tokens: CountId,
    buffers: Buffers,
) -> Option<Dispatch> {
    if !heads.pairs.is_multiple_of(2) {
        return None;
    }
    let key = fused_row::normed_key(&KERNEL, matrix.format, matrix.act_format, PACKS);
    let key = with(key, heads.pairing, buffers.dtype)?;
    let params = FusedRowQkvParams {
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        head_dim: heads.head_dim,
        pairs: heads.pairs,
        groups: matrix.groups,
        act_stride: matrix.act_stride(),
        bias: matrix.bias_word(),
        slots4: matrix.squares_at4(),
        eps,
        table: heads.table.map_or(0, |table| matrix.word(table)),
        block_size: buffers.block_size,
        kv_group: buffers.group,
    };
    let mut bindings = matrix.bindings();
    bindings.extend([buffers.step, buffers.qkv, buffers.kcache, buffers.vcache]);
    Some(Dispatch {
        key,
        bindings,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: matrix.grid(PACKS, tokens),
        cost: matrix.cost(PACKS),
    })
}
