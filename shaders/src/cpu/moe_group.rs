//! Reference of [`crate::kernels::moe_group`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::moe_group::MoeGroupParams;
use crate::kernels::step::NUM_TOKENS;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, _: [u32; 3]) {
    let p: &MoeGroupParams = bytemuck::from_bytes(params);
    let (step, route) = (bound.u32s(0), bound.u32s(1));
    let pairs = bound.u32s_mut(2);
    let (experts, tile) = (p.experts as usize, p.tile as usize);
    let total = (p.chosen * step[NUM_TOKENS].min(p.tokens)) as usize;

    let mut by_expert: Vec<Vec<u32>> = vec![Vec::new(); experts];
    for (pair, chosen) in (0..).zip(route.chunks_exact(2).take(total)) {
        by_expert[chosen[0] as usize].push(pair);
    }
    let (tiles, order) = pairs.split_at_mut(p.order as usize);
    let mut before = 0;
    for (expert, of_expert) in by_expert.iter().enumerate() {
        order[before..][..of_expert.len()].copy_from_slice(of_expert);
        let first = before / tile + expert;
        let mut end = (before + of_expert.len()) / tile + expert + 1;
        if expert + 1 == experts {
            end = total.div_ceil(tile) + experts;
        }
        for slot in first..end {
            let done = (tile * (slot - first)).min(of_expert.len());
            tiles[3 * slot..][..3].copy_from_slice(&[
                expert as u32,
                (before + done) as u32,
                (of_expert.len() - done).min(tile) as u32,
            ]);
        }
        before += of_expert.len();
    }
}
