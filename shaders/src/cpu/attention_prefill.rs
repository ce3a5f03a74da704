//! Reference of [`crate::kernels::attention_prefill`].

use super::attention::{Keys, Seq, State, first_seen, item, query};
use super::kv::KvRows;
use super::{Bound, act};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::attention_prefill::AttentionPrefillParams;
use crate::kernels::kv::KvDtype;
use crate::kernels::step::{self, TILE_QUERIES};

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &AttentionPrefillParams = bytemuck::from_bytes(params);
    let format = ActFormat::stored_by(key);
    let head_dim = key.value("HEAD_DIM") as usize;
    let part_keys = key.value("PART_KEYS");
    let rows = KvRows {
        dtype: KvDtype::of(key),
        kv_heads: p.kv_heads,
        block_size: p.block_size,
        head_dim,
    };
    let (qkv, kcache, vcache, words) = (bound.f32s(0), bound.u32s(1), bound.u32s(2), bound.u32s(3));
    let out = bound.u32s_mut(4);
    for tile in 0..grid[0] as usize {
        let [seq, first_query] = item(words, step::TILES, tile);
        let seq = Seq::read(words, seq);
        for i in first_query..seq.queries.min(first_query + TILE_QUERIES) {
            let token = seq.first_token + i;
            let visible = seq.context - seq.queries + i + 1;
            let low = first_seen(visible - 1, p.window);
            let row = &qkv[4 * (token * p.stride4 + p.q_at4) as usize..];
            for head in 0..p.heads {
                let keys = Keys {
                    kcache,
                    vcache,
                    table: seq.table(words, p.group),
                    kv_head: head / (p.heads / p.kv_heads),
                    rows,
                    softcap: p.softcap,
                };
                let q = query(row, head as usize, head_dim, p.scale);
                let mut whole = State::empty(head_dim);
                for first in (low / part_keys * part_keys..visible).step_by(part_keys as usize) {
                    let part = keys.part(&q, first.max(low), visible.min(first + part_keys));
                    whole.merge(part.m, part.l, &part.o);
                }
                let o: Vec<f32> = whole.o.iter().map(|o| o / whole.l).collect();
                let at = (token, head * (head_dim as u32 / 4), p.act_stride);
                act::store(format, out, at, &o);
            }
        }
    }
}
