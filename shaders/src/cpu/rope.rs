//! Reference of [`crate::kernels::rope`].

use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::rope::RopeParams;
use crate::kernels::step;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &RopeParams = bytemuck::from_bytes(params);
    let interleaved = key.slot("pairing") == Some("pairing_interleaved");
    let (table, step) = (bound.f32s(0), bound.u32s(1));
    let x = bound.f32s_mut(2);
    let (pairs, head_dim) = (p.pairs as usize, p.head_dim as usize);
    for token in 0..grid[1] as usize {
        let position = step[step[step::POSITIONS] as usize + token] as usize;
        let turns = &table[2 * pairs * position..][..2 * pairs];
        let row = &mut x[token * p.stride as usize..][..p.heads as usize * head_dim];
        for head in row.chunks_exact_mut(head_dim) {
            for (pair, turn) in turns.chunks_exact(2).enumerate() {
                let (i, j) = if interleaved {
                    (2 * pair, 2 * pair + 1)
                } else {
                    (pair, pair + pairs)
                };
                let (a, b) = (head[i], head[j]);
                head[i] = fma(a, turn[0], -(b * turn[1]));
                head[j] = fma(b, turn[0], a * turn[1]);
            }
        }
    }
}
