//! Reference of [`crate::kernels::attention_decode`].

use super::attention::{Keys, Seq, State, first_seen, item, query};
use super::kv::KvRows;
use super::{Bound, act};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::attention_decode::AttentionDecodeParams;
use crate::kernels::kv::KvDtype;
use crate::kernels::step;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &AttentionDecodeParams = bytemuck::from_bytes(params);
    let format = ActFormat::stored_by(key);
    let head_dim = key.value("HEAD_DIM") as usize;
    let part_keys = key.value("PART_KEYS");
    let group = key.value("GROUP");
    let heads = p.kv_heads * group;
    let rows = KvRows {
        dtype: KvDtype::of(key),
        kv_heads: p.kv_heads,
        block_size: p.block_size,
        head_dim,
    };
    let (qkv, kcache, vcache, words) = (bound.f32s(0), bound.u32s(1), bound.u32s(2), bound.u32s(3));
    let (parts, out) = (bound.f32s_mut(4), bound.u32s_mut(5));
    for at_item in 0..grid[0] {
        let [seq, i] = item(words, step::DECODES, at_item as usize);
        let seq = Seq::read(words, seq);
        let visible = seq.context - seq.queries + i + 1;
        let low = first_seen(visible - 1, p.window);
        let row = &qkv[4 * ((seq.first_token + i) * p.stride4 + p.q_at4) as usize..];
        for head in 0..heads {
            let keys = Keys {
                kcache,
                vcache,
                table: seq.table(words, p.group),
                kv_head: head / group,
                rows,
                softcap: p.softcap,
            };
            let q = query(row, head as usize, head_dim, p.scale);
            let first_part = low / part_keys;
            let all = visible.div_ceil(part_keys) - first_part;
            for part in 0..grid[2].min(all) {
                let first = (first_part + part) * part_keys;
                let state = keys.part(&q, first.max(low), visible.min(first + part_keys));
                if all == 1 {
                    let mut whole = State::empty(head_dim);
                    whole.merge(state.m, state.l, &state.o);
                    let at = (
                        seq.first_token + i,
                        head * (head_dim as u32 / 4),
                        p.act_stride,
                    );
                    act::store(format, out, at, &whole.result());
                    continue;
                }
                let at = ((at_item * heads + head) * p.max_parts + part) as usize * (head_dim + 4);
                let record = &mut parts[at..][..head_dim + 4];
                record[..head_dim].copy_from_slice(&state.o);
                record[head_dim..].copy_from_slice(&[state.m, state.l, 0.0, 0.0]);
            }
        }
    }
}
