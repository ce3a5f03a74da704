//! Reference of [`crate::kernels::fma_rate`].

use super::{Bound, fma, join};
use crate::kernel::KernelKey;
use crate::kernels::fma_rate::{CHAINS, FmaRateParams, LANES};

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &FmaRateParams = bytemuck::from_bytes(params);
    let lanes = (grid[0] * LANES) as usize;
    for (i, y) in (0..).zip(&mut bound.f32s_mut(0)[..lanes]) {
        let first = (i % LANES) as f32 * 0.125;
        let mut sum = [0.0; 4];
        for chain in 0..CHAINS {
            let c: [f32; 4] = std::array::from_fn(|k| first + chain as f32 + k as f32 * 0.25);
            let mut v = [0.0; 4];
            for _ in 0..p.rounds {
                for (v, c) in v.iter_mut().zip(c) {
                    *v = fma(*v, 0.9375, c);
                }
            }
            for (sum, v) in sum.iter_mut().zip(v) {
                *sum += v;
            }
        }
        *y = join(sum);
    }
}
