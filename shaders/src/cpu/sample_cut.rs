//! Reference of [`crate::kernels::sample_cut`].

use super::Bound;
use super::sample_scan::wanted;
use crate::kernel::KernelKey;
use crate::kernels::sample_cut::SampleCutParams;
use crate::kernels::sample_scan::{
    ABOVE, CUT, DIGITS, FLOOR, MAX, PREFIX, RANK, ROW_WORDS, STATE_WORDS, Stage, TARGET, TOP,
    order_key, order_value,
};
use crate::kernels::step;

fn wide(words: &[u32]) -> u64 {
    u64::from(words[1]) << 32 | u64::from(words[0])
}

fn put_wide(words: &mut [u32], value: u64) {
    (words[0], words[1]) = (value as u32, (value >> 32) as u32);
}

/// The highest bin with which the sum from above reaches `goal`, and the sum before it.
fn find(bins: &[u32], above: u64, goal: u64) -> Result<(u32, u64), u64> {
    let mut sum = above;
    for bin in (0..bins.len() / 2).rev() {
        let next = sum.wrapping_add(wide(&bins[2 * bin..]));
        if next >= goal {
            return Ok((bin as u32, sum));
        }
        sum = next;
    }
    Err(sum)
}

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SampleCutParams = bytemuck::from_bytes(params);
    let stage = Stage::of(key);
    let step = bound.u32s(0);
    let cut = bound.u32s_mut(1);
    let last = p.digit == DIGITS - 1;
    for row in 0..grid[0] {
        let record = step::sample_record(step, p.first_row + row);
        if !wanted(step, record, stage) {
            continue;
        }
        let (state, bins) = cut[row as usize * ROW_WORDS..][..ROW_WORDS].split_at_mut(STATE_WORDS);
        match stage {
            Stage::Max => {
                let top = order_value(state[MAX]);
                let gap = f32::from_bits(step[record + step::SAMPLE_MIN_P]);
                (state[MAX], state[PREFIX]) = (0, 0);
                put_wide(&mut state[ABOVE..], 0);
                state[CUT] = order_key(top + gap).max(order_key(FLOOR));
                state[RANK] = step[record + step::SAMPLE_TOP_K];
                state[TOP] = top.to_bits();
            }
            Stage::Count if state[RANK] == 0 => {}
            Stage::Count => {
                let goal = u64::from(state[RANK]);
                (state[RANK], state[PREFIX]) = match find(bins, 0, goal) {
                    Ok((bin, before)) => {
                        let prefix = state[PREFIX] << 8 | bin;
                        if last {
                            state[CUT] = state[CUT].max(prefix);
                            (0, 0)
                        } else {
                            ((goal - before) as u32, prefix)
                        }
                    }
                    // Fewer than k reach the cut: it stays where it is.
                    Err(_) => (0, 0),
                };
            }
            Stage::Mass => {
                if p.digit == 0 {
                    let total = bins.chunks(2).map(wide).fold(0, u64::wrapping_add);
                    let part = u128::from(total) * u128::from(step[record + step::SAMPLE_TOP_P]);
                    put_wide(&mut state[TARGET..], ((part >> 32) as u64).max(1));
                }
                let goal = wide(&state[TARGET..]);
                let (bin, above) =
                    find(bins, wide(&state[ABOVE..]), goal).unwrap_or_else(|sum| (0, sum));
                let prefix = state[PREFIX] << 8 | bin;
                if last {
                    state[CUT] = state[CUT].max(prefix);
                }
                state[PREFIX] = if last { 0 } else { prefix };
                put_wide(&mut state[ABOVE..], above);
            }
        }
        bins.fill(0);
    }
}
