//! A norm, queries, keys and values, rotary embedding and the writing of pages in one, for steps of few
//! tokens on GPUs: the bits of [`rms_norm`](super::rms_norm), [`matmul`](super::matmul) and
//! [`rope_kv`](super::rope_kv) one after the other. Rows are heads of queries, then of keys, then of values;
//! a pack of four has both dimensions of its rotary pairs.

use super::fused::{self, NormedMatrix};
use super::kv::KvDtype;
use super::rope_kv::Pairing;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch, Slice};

params! {
    /// Parameters of `fused_qkv`.
    pub struct FusedQkvParams {
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
        /// Tokens there is room for.
        pub tokens: u32,
        /// Packs of four rows a lane.
        pub lane_packs: u32,
        /// First of the gains, four at a time.
        pub gains4: u32,
        /// First word of the bias; `u32::MAX` where there is none.
        pub bias: u32,
        /// First word of the rotary table.
        pub table: u32,
        /// Tokens a page.
        pub block_size: u32,
        /// Group of layers whose slots are written to.
        pub kv_group: u32,
        /// Added to the mean square.
        pub eps: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "fused_qkv",
    bodies: bodies!["fused_qkv_gemv"],
    bindings: bindings![
        x: Read,
        w: Read,
        ws: Read,
        constants: Read,
        step: Read,
        qkv: ReadWrite,
        kcache: ReadWrite,
        vcache: ReadWrite
    ],
    params: FusedQkvParams::FIELDS,
    variants: || {
        let dtypes = [KvDtype::F32, KvDtype::F16];
        fused::keys(&KERNEL)
            .filter_map(|(i, key)| with(key, Pairing::ALL[i / 2 % 2], dtypes[i / 4 % 2]))
            .collect()
    },
};

fn with(key: KernelKey, pairing: Pairing, dtype: KvDtype) -> Option<KernelKey> {
    let key = key
        .module("step", "step")
        .module("pairing", pairing.module())
        .module("heads", "heads");
    Some(key.module("kv", dtype.pair_module()?))
}

/// How the heads lie and turn.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Elements a head, a multiple of 4.
    pub head_dim: u32,
    /// Rotary pairs a head, an even number.
    pub pairs: u32,
    /// How they lie.
    pub pairing: Pairing,
    /// Rotary table inside the constants, where something is turned.
    pub table: Option<Slice>,
}

/// Windows beyond the matrix's.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The step buffer.
    pub step: Slice,
    /// f32 `[tokens][heads + 2 kv_heads][head_dim]`, of which the queries are written.
    pub qkv: Slice,
    /// Pages of keys.
    pub kcache: Slice,
    /// Pages of values.
    pub vcache: Slice,
    /// What the pages hold.
    pub dtype: KvDtype,
    /// Tokens a page.
    pub block_size: u32,
    /// Group of layers whose slots are written to.
    pub group: u32,
}

/// Queries of the step's tokens, and their keys and values in their pages; `None` where pages or pairs
/// are not such that a lane can write its rows.
pub fn dispatch(
    matrix: &NormedMatrix,
    heads: &Heads,
    tokens: CountId,
    buffers: Buffers,
) -> Option<Dispatch> {
    if !heads.pairs.is_multiple_of(2) {
        return None;
    }
    let key = with(matrix.key(&KERNEL), heads.pairing, buffers.dtype)?;
    let params = FusedQkvParams {
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        head_dim: heads.head_dim,
        pairs: heads.pairs,
        groups: matrix.groups,
        tokens: matrix.tokens,
        lane_packs: matrix.lane_packs,
        gains4: matrix.gains4(),
        bias: matrix.bias_word(),
        table: heads.table.map_or(0, |table| matrix.word(table)),
        block_size: buffers.block_size,
        kv_group: buffers.group,
        eps: matrix.eps,
    };
    let mut bindings = matrix.bindings();
    bindings.extend([buffers.step, buffers.qkv, buffers.kcache, buffers.vcache]);
    let all = heads.heads + 2 * heads.kv_heads;
    Some(Dispatch {
        key,
        bindings,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: matrix.grid(all * heads.head_dim / 4, tokens),
        cost: matrix.cost(),
    })
}
