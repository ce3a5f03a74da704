//! Reference of [`crate::kernels::sample`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::sample::{CHUNK, LANES, SampleParams};
use crate::kernels::sample_scan::{self, order_value};
use crate::kernels::step;

fn pcg(v: u32) -> u32 {
    let state = v.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}

fn gumbel(seed: [u32; 2], position: u32, token: u32) -> f32 {
    let h = pcg(pcg(pcg(pcg(seed[0]) ^ seed[1]) ^ position) ^ token);
    let u = ((h >> 9) as f32 + 0.5) * 2f32.powi(-23);
    -(-u.ln()).ln()
}

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SampleParams = bytemuck::from_bytes(params);
    let (logits, step, cut) = (bound.f32s(0), bound.u32s(1), bound.u32s(2));
    let best = bound.u32s_mut(3);
    for row in 0..grid[1] {
        let record = step::sample_record(step, p.first_row + row);
        let temperature = f32::from_bits(step[record]);
        let seed = [step[record + 1], step[record + 2]];
        let position = step[record + 3];
        let lowest = match step[record + step::SAMPLE_FILTERS] {
            0 => f32::MIN,
            _ => order_value(cut[row as usize * sample_scan::ROW_WORDS + sample_scan::CUT]),
        };
        let logits = &logits[(row * p.vocab) as usize..][..p.vocab as usize];
        for group in 0..grid[0] {
            for lane in 0..LANES {
                let (mut top, mut top_id) = (-3.4e38f32, u32::MAX);
                let end = ((group + 1) * CHUNK).min(p.vocab);
                for id in (group * CHUNK + lane..end).step_by(LANES as usize) {
                    let logit = logits[id as usize];
                    let mut score = logit;
                    if temperature > 0.0 {
                        score = score / temperature + gumbel(seed, position, id);
                    }
                    if score > top && logit >= lowest {
                        (top, top_id) = (score, id);
                    }
                }
                let to = 2 * ((row * grid[0] + group) * LANES + lane) as usize;
                best[to] = top.to_bits();
                best[to + 1] = top_id;
            }
        }
    }
}
