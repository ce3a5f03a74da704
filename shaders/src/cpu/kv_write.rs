//! Reference of [`crate::kernels::kv_write`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::kv_write::KvWriteParams;
use crate::kernels::step;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &KvWriteParams = bytemuck::from_bytes(params);
    let (qkv, step) = (bound.f32s(0), bound.u32s(1));
    let (kcache, vcache) = (bound.f32s_mut(2), bound.f32s_mut(3));
    let dim = 4 * p.head_dim4 as usize;
    let slots = (step[step::SLOTS] + p.group * step[step::NUM_TOKENS]) as usize;
    for token in 0..grid[1] as usize {
        let slot = step[slots + token];
        if slot == step::NO_SLOT {
            continue;
        }
        let (page, offset) = (slot / p.block_size, slot % p.block_size);
        let row = &qkv[token * 4 * p.stride4 as usize..];
        for head in 0..p.kv_heads {
            let to = (((page * p.kv_heads + head) * p.block_size + offset) as usize) * dim;
            let from = head as usize * dim;
            kcache[to..][..dim].copy_from_slice(&row[4 * p.k_at4 as usize + from..][..dim]);
            vcache[to..][..dim].copy_from_slice(&row[4 * p.v_at4 as usize + from..][..dim]);
        }
    }
}
