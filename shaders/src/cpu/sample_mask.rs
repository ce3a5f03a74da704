//! Reference of [`crate::kernels::sample_mask`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::sample_mask::{CHUNK, SampleMaskParams};

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SampleMaskParams = bytemuck::from_bytes(params);
    let masks = bound.u32s(0);
    let logits = bound.f32s_mut(1);
    for mask in 0..grid[1] {
        let record = &masks[(mask * p.record) as usize..][..p.record as usize];
        for id in 0..(grid[0] * CHUNK).min(p.vocab) {
            let word = record[1 + id as usize / 32];
            if word >> (id % 32) & 1 == 0 {
                logits[(record[0] * p.vocab + id) as usize] = p.banned;
            }
        }
    }
}
