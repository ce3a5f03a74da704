//! Reference of [`crate::kernels::pool_sum`].

use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::pool_sum::{NO_ROW, POOL_WORDS, PoolSumParams};

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &PoolSumParams = bytemuck::from_bytes(params);
    let (x, rstd, pools) = (bound.f32s(0), bound.f32s(1), bound.u32s(2));
    let sums = bound.f32s_mut(3);
    let dim = 4 * p.dim4 as usize;
    for pool in pools.chunks_exact(POOL_WORDS).take(grid[1] as usize) {
        let (first, tokens, from, to) = (pool[0], pool[1], pool[2], pool[3]);
        let to = to as usize * dim;
        match from {
            NO_ROW => sums[to..to + dim].fill(0.0),
            row => sums.copy_within(row as usize * dim..(row as usize + 1) * dim, to),
        }
        for token in first..first + tokens {
            for i in 0..p.dim4 {
                let at = 4 * (token * p.act_stride + i) as usize;
                for c in 0..4 {
                    let s = &mut sums[to + 4 * i as usize + c];
                    *s = fma(x[at + c], rstd[token as usize], *s);
                }
            }
        }
    }
}
