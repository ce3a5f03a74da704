//! Reference of [`crate::kernels::rope_kv`].

use super::kv::KvRows;
use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::kv::KvDtype;
use crate::kernels::rope_kv::{Pairing, RopeKvParams};
use crate::kernels::step;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &RopeKvParams = bytemuck::from_bytes(params);
    let (table, step) = (bound.f32s(0), bound.u32s(1));
    let qkv = bound.f32s_mut(2);
    let (kcache, vcache) = (bound.u32s_mut(3), bound.u32s_mut(4));
    let (dim, pairs) = (key.value("HEAD_DIM") as usize, p.pairs as usize);
    let pairing = Pairing::of(key);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let rows = KvRows {
        dtype: KvDtype::of(key),
        kv_heads: p.kv_heads,
        block_size: p.block_size,
        head_dim: dim,
    };
    let slots = (step[step::SLOTS] + p.group * step[step::NUM_TOKENS]) as usize;
    for token in 0..grid[1] as usize {
        let position = step[step[step::POSITIONS] as usize + token] as usize;
        let turns = match pairs {
            0 => &[],
            _ => &table[2 * pairs * position..][..2 * pairs],
        };
        let turn = |head: &mut [f32]| {
            for (pair, turn) in turns.chunks_exact(2).enumerate() {
                let (i, j) = pairing.dims(pair, pairs);
                let (a, b) = (head[i], head[j]);
                head[i] = fma(a, turn[0], -(b * turn[1]));
                head[j] = fma(b, turn[0], a * turn[1]);
            }
        };
        let row = &mut qkv[token * 4 * p.stride4 as usize..];
        let (queries, row) = row.split_at_mut(heads * dim);
        let (keys, values) = row.split_at_mut(kv_heads * dim);
        queries.chunks_exact_mut(dim).for_each(turn);
        let slot = step[slots + token];
        if slot == step::NO_SLOT {
            continue;
        }
        let (page, offset) = (slot / p.block_size, slot % p.block_size);
        let kv = keys.chunks_exact(dim).zip(values.chunks_exact(dim));
        for (head, (k, v)) in (0..).zip(kv) {
            let to = rows.row(page, head, offset);
            let mut k = k.to_vec();
            turn(&mut k);
            rows.store(kcache, to, &k);
            rows.store(vcache, to, v);
        }
    }
}
