//! Reference of [`crate::kernels::prepare`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::prepare::PrepareParams;
use crate::kernels::step::{self, FROM_STATE, NO_SLOT};

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &PrepareParams = bytemuck::from_bytes(params);
    let (step, state) = (bound.u32s_mut(0), bound.u32s_mut(1));
    for number in 0..grid[1] as usize {
        let seq = step[step::SEQS] as usize + number * step::SEQ_WORDS;
        let [first_token, queries, _, tables, pages] = [0, 1, 2, 3, 4].map(|word| step[seq + word]);
        let given = step[step::STATES] as usize + number * step::STATE_GIVEN_WORDS;
        let kept = &mut state[step[given + 1] as usize * step::STATE_WORDS..][..step::STATE_WORDS];
        let (context, active) = match step[given] {
            FROM_STATE => (
                kept[step::STATE_CONTEXT] + queries,
                kept[step::STATE_ACTIVE] != 0,
            ),
            context => {
                kept[step::STATE_CONTEXT] = context;
                kept[step::STATE_REMAINING] = step[given + 2];
                kept[step::STATE_ACTIVE] = 1;
                (context, true)
            }
        };
        step[seq + 2] = context;
        for query in 0..queries {
            let token = first_token + query;
            let position = context - queries + query;
            let id = (step[step::IDS] + token) as usize;
            if step[id] == FROM_STATE {
                step[id] = kept[step::STATE_LAST_TOKEN];
            }
            step[(step[step::POSITIONS] + token) as usize] = position;
            let page = position / p.block_size;
            for group in 0..p.groups {
                let slot = if active && page < pages {
                    let block = step[(tables + group * pages + page) as usize];
                    block * p.block_size + position % p.block_size
                } else {
                    NO_SLOT
                };
                let slots = step[step::SLOTS] + group * step[step::NUM_TOKENS];
                step[(slots + token) as usize] = slot;
            }
        }
    }
}
