//! Reference of [`crate::kernels::embed`].

use super::Bound;
use super::weight_row::Row;
use crate::kernel::KernelKey;
use crate::kernels::embed::EmbedParams;
use crate::kernels::step;
use crate::kernels::weight::{GROUP, WeightFormat};

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &EmbedParams = bytemuck::from_bytes(params);
    let format = WeightFormat::of_key(key);
    let (w, ws, step) = (bound.u32s(0), bound.u32s(1), bound.u32s(2));
    let x = bound.f32s_mut(3);
    let dim = 4 * p.dim4 as usize;
    for token in 0..grid[1] as usize {
        let id = step[step[step::IDS] as usize + token];
        // An id below the window wraps around and is outside it too.
        let row = id.wrapping_sub(p.first_row);
        if row >= p.rows {
            continue;
        }
        let row = Row::new(format, p.groups, w, ws, row as usize);
        let out = &mut x[token * dim..][..dim];
        for (group, out) in out.chunks_mut(GROUP as usize).enumerate() {
            for (out, value) in out.iter_mut().zip(row.widened(group as u32)) {
                *out = value * p.scale;
            }
        }
    }
}
