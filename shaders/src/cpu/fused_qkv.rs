//! Reference of [`crate::kernels::fused_qkv`].

use super::bound::Window;
use super::fused::{self, NOWHERE, Normed};
use super::{Bound, rope_kv};
use crate::kernel::KernelKey;
use crate::kernels::fused::act_format_of;
use crate::kernels::fused_qkv::FusedQkvParams;
use crate::kernels::kv::KvDtype;
use crate::kernels::rope_kv::{Pairing, RopeKvParams};
use crate::kernels::step;
use crate::kernels::weight::WeightFormat;
use crate::program::CountId;
use bytemuck::{cast_slice, cast_slice_mut};

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &FusedQkvParams = bytemuck::from_bytes(params);
    let (constants, step) = (bound.f32s(3), bound.u32s(4));
    let turning = Turning {
        heads: p.heads,
        kv_heads: p.kv_heads,
        head_dim: p.head_dim,
        pairs: p.pairs,
        block_size: p.block_size,
        group: p.kv_group,
    };
    let rows = turning.rows();
    let tokens = p.tokens.min(grid[1] * key.value("TOKENS"));
    let tokens = tokens.min(step[step::NUM_TOKENS]);
    let normed = Normed {
        format: WeightFormat::of_key(key),
        act_format: act_format_of(key),
        rows,
        groups: p.groups,
        tokens,
        gains: fused::vector(constants, 4 * p.gains4, 32 * p.groups),
        bias: fused::bias(constants, p.bias, rows),
        eps: p.eps,
    };
    let y = normed.product(bound);
    let to = [bound.u32s_mut(5), bound.u32s_mut(6), bound.u32s_mut(7)];
    let from = (&constants[p.table as usize..], step);
    turning.run(key, y, tokens, from, to);
}

/// How the heads of rows lie, and where their keys and values go.
pub(super) struct Turning {
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) pairs: u32,
    pub(super) block_size: u32,
    pub(super) group: u32,
}

impl Turning {
    pub(super) fn rows(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Turns the rows y of so many tokens: queries go to the first window, keys and values to the pages in the
    /// two others.
    pub(super) fn run(
        &self,
        key: &KernelKey,
        mut y: Vec<f32>,
        tokens: u32,
        (table, step): (&[f32], &[u32]),
        [qkv, kcache, vcache]: [&mut [u32]; 3],
    ) {
        let rows = self.rows();
        let turn = RopeKvParams {
            heads: self.heads,
            kv_heads: self.kv_heads,
            pairs: self.pairs,
            stride4: rows / 4,
            block_size: self.block_size,
            group: self.group,
        };
        let buffers = crate::kernels::rope_kv::Buffers {
            table: None,
            step: NOWHERE,
            qkv: NOWHERE,
            kcache: NOWHERE,
            vcache: NOWHERE,
            dtype: KvDtype::of_pairs(key),
        };
        let turn = crate::kernels::rope_kv::dispatch(
            Pairing::of(key),
            self.head_dim,
            turn,
            CountId(0),
            buffers,
        );
        let windows = vec![
            Window::Read(cast_slice(table)),
            Window::Read(step),
            Window::ReadWrite(Some(cast_slice_mut(&mut y))),
            Window::ReadWrite(Some(kcache)),
            Window::ReadWrite(Some(vcache)),
        ];
        fused::run(rope_kv::run, &turn, windows, [1, tokens, 1]);
        let queries = (self.heads * self.head_dim) as usize;
        let stride = rows as usize;
        for (y, qkv) in y.chunks_exact(stride).zip(qkv.chunks_mut(stride)) {
            qkv[..queries].copy_from_slice(cast_slice(&y[..queries]));
        }
    }
}
