//! Reference of [`crate::kernels::sample_scan`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::sample_scan::{
    CUT, MAX, PREFIX, RANK, ROW_WORDS, STATE_WORDS, SampleScanParams, Stage, TOP, order_key,
};
use crate::kernels::step;

/// Whether the row of this sampling record takes part in a stage.
pub(super) fn wanted(step: &[u32], record: usize, stage: Stage) -> bool {
    let word = match stage {
        Stage::Max => step::SAMPLE_FILTERS,
        Stage::Count => step::SAMPLE_TOP_K,
        Stage::Mass => step::SAMPLE_TOP_P,
    };
    step[record + word] != 0
}

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SampleScanParams = bytemuck::from_bytes(params);
    let stage = Stage::of(key);
    let (logits, step) = (bound.f32s(0), bound.u32s(1));
    let cut = bound.u32s_mut(2);
    for row in 0..grid[1] {
        let record = step::sample_record(step, p.first_row + row);
        if !wanted(step, record, stage) {
            continue;
        }
        let logits = &logits[(row * p.vocab) as usize..][..p.vocab as usize];
        let (state, bins) = cut[row as usize * ROW_WORDS..][..ROW_WORDS].split_at_mut(STATE_WORDS);
        if stage == Stage::Max {
            let keys = logits.iter().map(|&x| order_key(x));
            state[MAX] = keys.fold(state[MAX], u32::max);
            continue;
        }
        if stage == Stage::Count && state[RANK] == 0 {
            continue;
        }
        let top = f32::from_bits(state[TOP]);
        let temperature = f32::from_bits(step[record]);
        let shift = 24 - 8 * p.digit;
        for &x in logits {
            let key = order_key(x);
            if key < state[CUT] || (key >> shift) >> 8 != state[PREFIX] {
                continue;
            }
            let bin = &mut bins[2 * ((key >> shift) & 0xff) as usize..][..2];
            let add = match stage {
                Stage::Mass => {
                    let mass = ((x - top) / temperature).exp() * 4096.0;
                    let low = ((mass - mass.floor()) * 4_294_967_296.0) as u32;
                    u64::from(mass as u32) << 32 | u64::from(low)
                }
                Stage::Max | Stage::Count => 1,
            };
            let sum = (u64::from(bin[1]) << 32 | u64::from(bin[0])).wrapping_add(add);
            (bin[0], bin[1]) = (sum as u32, (sum >> 32) as u32);
        }
    }
}
