//! Reference of [`crate::kernels::tap_rows`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::tap_rows::TapRowsParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &TapRowsParams = bytemuck::from_bytes(params);
    let normed = key.value("NORMED") == 1;
    let (x, rstd) = (bound.f32s(0), bound.f32s(1));
    let out = bound.f32s_mut(2);
    for token in 0..grid[1] {
        let scale = if normed { rstd[token as usize] } else { 1.0 };
        for i in 0..p.dim4 {
            let from = 4 * (token * p.act_stride + i) as usize;
            let to = 4 * (token * p.dim4 + i) as usize;
            for c in 0..4 {
                out[to + c] = x[from + c] * scale;
            }
        }
    }
}
