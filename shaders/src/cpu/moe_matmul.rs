//! Reference of [`crate::kernels::moe_matmul`].

use super::matmul::multiply;
use super::weight_row::{Row, Scaling};
use super::{Bound, act};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::matmul::tile_dimension;
use crate::kernels::moe_matmul::MoeMatmulParams;
use crate::kernels::weight::WeightFormat;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &MoeMatmulParams = bytemuck::from_bytes(params);
    let act_format = ActFormat::read_by(key);
    let format = WeightFormat::of_key(key);
    let scaling = Scaling::of(format, act_format);
    let (act, w, ws) = (bound.u32s(0), bound.u32s(1), bound.u32s(2));
    let (rstd, pairs) = (bound.f32s(3), bound.u32s(4));
    let y = bound.f32s_mut(5);
    for tile in 0..(grid[tile_dimension(key)] * grid[2]) as usize {
        // An expert, and the pairs of the tile.
        let (expert, of_expert) = match key.slot("tile") {
            Some("tile_pair") => (pairs[2 * tile], vec![tile as u32]),
            _ => {
                let [expert, first, number] = [0, 1, 2].map(|i| pairs[3 * tile + i]);
                let order = &pairs[(p.order + first) as usize..];
                (expert, order[..number as usize].to_vec())
            }
        };
        // One before the window wraps around and is outside it too.
        let expert = expert.wrapping_sub(p.first_expert);
        if expert >= p.experts {
            continue;
        }
        let input = |n: usize| of_expert[n] / p.share;
        let inputs: Vec<_> = (0..of_expert.len())
            .map(|n| act::row(act_format, act, input(n), p.act_stride, p.groups))
            .collect();
        let first = (expert * p.rows) as usize;
        let row = |row| Row::new(format, p.groups, w, ws, first + row);
        multiply(scaling, (p.rows, p.groups), row, &inputs, |n, row, t| {
            let scale = if p.norm != 0 {
                rstd[input(n) as usize]
            } else {
                1.0
            };
            y[(of_expert[n] * p.y_stride + p.y_offset) as usize + row] = t * scale;
        });
    }
}
