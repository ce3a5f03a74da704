//! Reference of [`crate::kernels::gather_rows`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::gather_rows::GatherRowsParams;
use crate::kernels::step;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &GatherRowsParams = bytemuck::from_bytes(params);
    let (x, step) = (bound.f32s(0), bound.u32s(1));
    let out = bound.f32s_mut(2);
    let dim = 4 * p.dim4 as usize;
    for row in 0..grid[1] as usize {
        let token = step[step[step::ROWS] as usize + p.first_row as usize + row] as usize;
        out[row * dim..][..dim].copy_from_slice(&x[token * dim..][..dim]);
    }
}
