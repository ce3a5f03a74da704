//! Reference of [`crate::kernels::moe_matmul`].

use super::matmul::row_dot;
use super::weight_row::{Row, Scaling};
use super::{Bound, act};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::moe_matmul::MoeMatmulParams;
use crate::kernels::weight::WeightFormat;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &MoeMatmulParams = bytemuck::from_bytes(params);
    let act_format = ActFormat::read_by(key);
    let format = WeightFormat::of_key(key);
    let scaling = Scaling::of(format, act_format);
    let (act, w, ws) = (bound.u32s(0), bound.u32s(1), bound.u32s(2));
    let (rstd, route) = (bound.f32s(3), bound.u32s(4));
    let y = bound.f32s_mut(5);
    let chosen = match key.body {
        "moe_matmul_row" => grid[0],
        _ => grid[1],
    };
    let rows = p.rows as usize;
    for pair in 0..chosen * grid[2] {
        // An expert before the window wraps around and is outside it too.
        let expert = route[2 * pair as usize].wrapping_sub(p.first_expert);
        if expert >= p.experts {
            continue;
        }
        let input = pair / p.share;
        let (x, sums) = act::row(act_format, act, input, p.act_stride, p.groups);
        let y = &mut y[(pair * p.y_stride + p.y_offset) as usize..][..rows];
        for (row, y) in y.iter_mut().enumerate() {
            let row = Row::new(format, p.groups, w, ws, expert as usize * rows + row);
            *y = row_dot(scaling, &row, &x, &sums);
            if p.norm != 0 {
                *y *= rstd[input as usize];
            }
        }
    }
}
