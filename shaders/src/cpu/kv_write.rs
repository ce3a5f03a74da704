//! Reference of [`crate::kernels::kv_write`].

use super::Bound;
use super::kv::KvRows;
use crate::kernel::KernelKey;
use crate::kernels::kv::KvDtype;
use crate::kernels::kv_write::KvWriteParams;
use crate::kernels::step;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &KvWriteParams = bytemuck::from_bytes(params);
    let (qkv, step) = (bound.f32s(0), bound.u32s(1));
    let (kcache, vcache) = (bound.u32s_mut(2), bound.u32s_mut(3));
    let dim = key.value("HEAD_DIM") as usize;
    let rows = KvRows {
        dtype: KvDtype::of(key),
        kv_heads: p.kv_heads,
        block_size: p.block_size,
        head_dim: dim,
    };
    let slots = (step[step::SLOTS] + p.group * step[step::NUM_TOKENS]) as usize;
    for token in 0..grid[1] as usize {
        let slot = step[slots + token];
        if slot == step::NO_SLOT {
            continue;
        }
        let (page, offset) = (slot / p.block_size, slot % p.block_size);
        let row = &qkv[token * 4 * p.stride4 as usize..];
        for head in 0..p.kv_heads {
            let to = rows.row(page, head, offset);
            let from = head as usize * dim;
            rows.store(kcache, to, &row[4 * p.k_at4 as usize + from..][..dim]);
            rows.store(vcache, to, &row[4 * p.v_at4 as usize + from..][..dim]);
        }
    }
}
