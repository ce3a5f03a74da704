//! Reference of [`crate::kernels::head_norm`].

use super::Bound;
use super::rms_norm::rstd;
use crate::kernel::KernelKey;
use crate::kernels::head_norm::HeadNormParams;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &HeadNormParams = bytemuck::from_bytes(params);
    let gains = bound.f32s(0);
    let x = bound.f32s_mut(1);
    let (dim, stride) = (4 * p.head_dim4 as usize, 4 * p.stride4 as usize);
    let heads = (p.heads + p.kv_heads) as usize;
    for row in x.chunks_exact_mut(stride).take(grid[1] as usize) {
        for (i, head) in row[..heads * dim].chunks_exact_mut(dim).enumerate() {
            let gains = &gains[if i < p.heads as usize { 0 } else { dim }..][..dim];
            let rstd = rstd(head, p.eps);
            for (v, g) in head.iter_mut().zip(gains) {
                *v = *v * rstd * g;
            }
        }
    }
}
