//! Reference of [`crate::kernels::sample_state`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::sample_state::SampleStateParams;
use crate::kernels::step;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SampleStateParams = bytemuck::from_bytes(params);
    let (step, ids) = (bound.u32s(0), bound.u32s(1));
    let state = bound.u32s_mut(2);
    for row in p.first_row as usize..(p.first_row + grid[0]) as usize {
        let draw = &step[step[step::DRAWS] as usize + row * step::DRAW_WORDS..];
        let seq = draw[0];
        if seq == step::NO_SEQ {
            continue;
        }
        let slot = step[step[step::STATES] as usize + seq as usize * step::STATE_GIVEN_WORDS + 1];
        let kept = &mut state[slot as usize * step::STATE_WORDS..][..step::STATE_WORDS];
        if kept[step::STATE_ACTIVE] == 0 {
            continue;
        }
        let id = ids[row];
        let ends = &draw[2..][..(draw[1] as usize).min(step::DRAW_ENDS)];
        kept[step::STATE_LAST_TOKEN] = id;
        kept[step::STATE_CONTEXT] =
            step[step[step::SEQS] as usize + seq as usize * step::SEQ_WORDS + 2];
        kept[step::STATE_REMAINING] -= 1;
        let ended = kept[step::STATE_REMAINING] == 0 || ends.contains(&id);
        kept[step::STATE_ACTIVE] = u32::from(!ended);
    }
}
