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
    let rows = (p.heads + 2 * p.kv_heads) * p.head_dim;
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
    let mut y = normed.product(bound);
    let turn = RopeKvParams {
        heads: p.heads,
        kv_heads: p.kv_heads,
        pairs: p.pairs,
        stride4: rows / 4,
        block_size: p.block_size,
        group: p.kv_group,
    };
    let buffers = crate::kernels::rope_kv::Buffers {
        table: None,
        step: NOWHERE,
        qkv: NOWHERE,
        kcache: NOWHERE,
        vcache: NOWHERE,
        dtype: KvDtype::of_pairs(key),
    };
    let turn =
        crate::kernels::rope_kv::dispatch(Pairing::of(key), p.head_dim, turn, CountId(0), buffers);
    let (qkv, kcache, vcache) = (bound.f32s_mut(5), bound.u32s_mut(6), bound.u32s_mut(7));
    let windows = vec![
        Window::Read(cast_slice(&constants[p.table as usize..])),
        Window::Read(step),
        Window::ReadWrite(Some(cast_slice_mut(&mut y))),
        Window::ReadWrite(Some(kcache)),
        Window::ReadWrite(Some(vcache)),
    ];
    fused::run(rope_kv::run, &turn, windows, [1, tokens, 1]);
    let queries = (p.heads * p.head_dim) as usize;
    let stride = rows as usize;
    for (y, qkv) in y.chunks_exact(stride).zip(qkv.chunks_mut(stride)) {
        qkv[..queries].copy_from_slice(&y[..queries]);
    }
}
