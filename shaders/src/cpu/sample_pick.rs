//! Reference of [`crate::kernels::sample_pick`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::sample_pick::SamplePickParams;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SamplePickParams = bytemuck::from_bytes(params);
    let best = bound.u32s(0);
    let ids = bound.u32s_mut(1);
    for row in 0..grid[0] as usize {
        let (mut top, mut top_id) = (-3.4e38f32, u32::MAX);
        let n = p.candidates as usize;
        for candidate in best[2 * row * n..][..2 * n].chunks_exact(2) {
            let (score, id) = (f32::from_bits(candidate[0]), candidate[1]);
            if score > top || (score == top && id < top_id) {
                (top, top_id) = (score, id);
            }
        }
        ids[p.first_row as usize + row] = top_id;
    }
}
