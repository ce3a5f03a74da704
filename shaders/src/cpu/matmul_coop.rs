//! Reference of [`crate::kernels::matmul_coop`]: the 16 products of a matrix product are added one
//! after another, each with one rounding to singles.

use super::weight_row::Row;
use super::{Bound, fma};
use crate::kernel::KernelKey;
use crate::kernels::matmul::MatmulParams;
use crate::kernels::matmul_coop::token_tile;
use crate::kernels::weight::WeightFormat;
use half::f16;

/// Elements of a group.
const GROUP: usize = 32;
/// Groups of a span.
const SPAN: usize = 16;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &MatmulParams = bytemuck::from_bytes(params);
    let format = WeightFormat::of_key(key);
    let (act, w, ws, rstd) = (bound.u32s(0), bound.u32s(1), bound.u32s(2), bound.f32s(3));
    let bias = bound.f32s(4);
    let y = bound.f32s_mut(5);
    let tokens = (token_tile(key) * grid[1]).min(p.tokens) as usize;
    let groups = p.groups as usize;
    let inputs: Vec<Vec<f32>> = (0..tokens)
        .map(|token| {
            let words = &act[16 * token * p.act_stride as usize..][..16 * groups];
            let halves = words
                .iter()
                .flat_map(|word| [*word as u16, (word >> 16) as u16]);
            halves.map(|bits| f16::from_bits(bits).to_f32()).collect()
        })
        .collect();
    let mut weights = vec![0.0; groups * GROUP];
    for row in 0..p.rows as usize {
        let packed = Row::new(format, p.groups, w, ws, row);
        for (g, weights) in (0..).zip(weights.chunks_exact_mut(GROUP)) {
            weights.copy_from_slice(&packed.widened(g).map(|w| f16::from_f32(w).to_f32()));
        }
        for (token, x) in inputs.iter().enumerate() {
            let mut total = 0.0;
            for (weights, x) in weights.chunks(SPAN * GROUP).zip(x.chunks(SPAN * GROUP)) {
                let products = weights.iter().zip(x);
                total += products.fold(0.0, |a, (w, x)| fma(*w, *x, a));
            }
            let column = p.y_offset as usize + row;
            let scale = if p.norm != 0 { rstd[token] } else { 1.0 };
            let bias = if p.bias != 0 { bias[column] } else { 0.0 };
            let joined = fma(total, scale, bias);
            let y = &mut y[token * p.y_stride as usize + column];
            *y = if p.add != 0 { *y + joined } else { joined };
        }
    }
}
