//! Reference of [`crate::kernels::fused_row_join`].

use super::{Bound, act, fused, fused_row, rms_norm};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::fused_row_join::FusedRowJoinParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &FusedRowJoinParams = bytemuck::from_bytes(params);
    if grid.contains(&0) {
        return;
    }
    let y = fused_row::product(key, bound, (p.rows, p.groups), p.bias, None);
    let gains = fused::vector(bound.f32s(3), 4 * p.gains4, p.rows);
    let (x, out) = (bound.f32s_mut(4), bound.u32s_mut(5));
    for (x, y) in x.iter_mut().zip(&y) {
        *x += y;
    }
    let x = &x[..p.rows as usize];
    let gained: Vec<f32> = x.iter().zip(gains).map(|(x, g)| x * g).collect();
    let format = ActFormat::stored_by(key);
    act::store(format, out, (0, 0, p.out_stride), &gained);
    let squares = out[4 * p.slots4 as usize..].chunks_exact_mut(4);
    for (chunk, slot) in squares.zip(x.chunks_exact(32)) {
        chunk.copy_from_slice(&[rms_norm::squares(slot).to_bits(), 0, 0, 0]);
    }
}
