//! Reference of [`crate::kernels::kv_copy`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::kv_copy::KvCopyParams;
use crate::kernels::step;

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &KvCopyParams = bytemuck::from_bytes(params);
    let step = bound.u32s(0);
    let caches = [bound.u32s_mut(1), bound.u32s_mut(2)];
    let first = step[step[step::COPIES] as usize + p.group as usize] as usize;
    let page = 4 * p.page16 as usize;
    for cache in caches {
        for copy in step[first..]
            .chunks_exact(step::COPY_WORDS)
            .take(grid[1] as usize)
        {
            let [src, dst] = [copy[0], copy[1]].map(|block| block as usize * page);
            cache.copy_within(src..src + page, dst);
        }
    }
}
