//! Reference of [`crate::kernels::quantize`].

use super::{Bound, act};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::quantize::QuantizeParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &QuantizeParams = bytemuck::from_bytes(params);
    let format = ActFormat::stored_by(key);
    let x = bound.f32s(0);
    let out = bound.u32s_mut(1);
    let dim = 4 * p.dim4 as usize;
    for token in 0..grid[1] {
        let row = &x[token as usize * dim..][..dim];
        act::store(format, out, (token, 0, p.act_stride), row);
    }
}
