//! Reference of [`crate::kernels::residual_norm`].

use super::rms_norm::rstd;
use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::residual_norm::ResidualNormParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &ResidualNormParams = bytemuck::from_bytes(params);
    let (y, g) = (bound.f32s(0), bound.f32s(1));
    let x = bound.f32s_mut(2);
    let dim = 4 * p.dim4 as usize;
    let tokens = (grid[0] * key.value("TOKENS")).min(p.tokens) as usize;
    for (x, y) in x
        .chunks_exact_mut(dim)
        .zip(y.chunks_exact(dim))
        .take(tokens)
    {
        let rstd = rstd(y, p.eps);
        for ((x, y), g) in x.iter_mut().zip(y).zip(g) {
            *x = fma(y * g, rstd, *x);
        }
    }
}
