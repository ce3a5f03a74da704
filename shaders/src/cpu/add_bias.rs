//! Reference of [`crate::kernels::add_bias`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::add_bias::AddBiasParams;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &AddBiasParams = bytemuck::from_bytes(params);
    let bias = bound.f32s(0);
    let y = bound.f32s_mut(1);
    for token in 0..grid[1] {
        let row = &mut y[(token * p.stride + p.offset) as usize..][..p.dim as usize];
        for (y, b) in row.iter_mut().zip(bias) {
            *y += b;
        }
    }
}
