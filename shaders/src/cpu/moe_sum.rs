//! Reference of [`crate::kernels::moe_sum`].

use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::moe_sum::MoeSumParams;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &MoeSumParams = bytemuck::from_bytes(params);
    let (y, route) = (bound.f32s(0), bound.u32s(1));
    let out = bound.f32s_mut(2);
    let (dim, chosen) = (4 * p.dim4 as usize, p.chosen as usize);
    for token in 0..grid[1] as usize {
        let out = &mut out[token * dim..][..dim];
        out.fill(0.0);
        for pair in token * chosen..(token + 1) * chosen {
            let weight = f32::from_bits(route[2 * pair + 1]);
            for (out, y) in out.iter_mut().zip(&y[pair * dim..]) {
                *out = fma(weight, *y, *out);
            }
        }
    }
}
