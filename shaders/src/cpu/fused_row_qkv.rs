//! Reference of [`crate::kernels::fused_row_qkv`].

use super::fused_qkv::Turning;
use super::{Bound, fused_row};
use crate::kernel::KernelKey;
use crate::kernels::fused_row_qkv::FusedRowQkvParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &FusedRowQkvParams = bytemuck::from_bytes(params);
    let (constants, step) = (bound.f32s(3), bound.u32s(4));
    if grid.contains(&0) {
        return;
    }
    let turning = Turning {
        heads: p.heads,
        kv_heads: p.kv_heads,
        head_dim: p.head_dim,
        pairs: p.pairs,
        block_size: p.block_size,
        group: p.kv_group,
    };
    let shape = (turning.rows(), p.groups);
    let y = fused_row::product(key, bound, shape, p.bias, Some(p.eps));
    let to = [bound.u32s_mut(5), bound.u32s_mut(6), bound.u32s_mut(7)];
    let from = (&constants[p.table as usize..], step);
    turning.run(key, y, 1, from, to);
}
