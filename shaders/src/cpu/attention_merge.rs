//! Reference of [`crate::kernels::attention_merge`].

use super::attention::{Seq, State, first_seen, item};
use super::{Bound, act};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::attention_merge::AttentionMergeParams;
use crate::kernels::step;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &AttentionMergeParams = bytemuck::from_bytes(params);
    let format = ActFormat::stored_by(key);
    let head_dim = key.value("HEAD_DIM") as usize;
    let part_keys = key.value("PART_KEYS");
    let (parts, words) = (bound.f32s(0), bound.u32s(1));
    let out = bound.u32s_mut(2);
    for at_item in 0..grid[1] {
        let [seq, i] = item(words, step::DECODES, at_item as usize);
        let seq = Seq::read(words, seq);
        let visible = seq.context - seq.queries + i + 1;
        let first_part = first_seen(visible - 1, p.window) / part_keys;
        let all = visible.div_ceil(part_keys) - first_part;
        // What has one part is in its place.
        if all == 1 {
            continue;
        }
        for head in 0..p.heads {
            let mut whole = State::empty(head_dim);
            for part in 0..all {
                let at =
                    ((at_item * p.heads + head) * p.max_parts + part) as usize * (head_dim + 4);
                let (o, ml) = parts[at..][..head_dim + 4].split_at(head_dim);
                whole.merge(ml[0], ml[1], o);
            }
            let at = (
                seq.first_token + i,
                head * (head_dim as u32 / 4),
                p.act_stride,
            );
            act::store(format, out, at, &whole.result());
        }
    }
}
