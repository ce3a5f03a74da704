//! Reference of [`crate::kernels::residual`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::residual::ResidualParams;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &ResidualParams = bytemuck::from_bytes(params);
    let y = bound.f32s(0);
    let x = bound.f32s_mut(1);
    let len = 4 * (p.dim4 * grid[1]) as usize;
    for (x, y) in x[..len].iter_mut().zip(y) {
        *x += y;
    }
}
