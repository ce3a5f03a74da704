//! Reference of [`crate::kernels::matmul`].

use super::act::{self, Sums};
use super::weight_row::{Row, Scale, Scaling};
use super::{Bound, fma, join};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::matmul::{MatmulParams, tile_dimension};
use crate::kernels::weight::WeightFormat;

/// Rows unpacked together: enough independent chains to fill a core.
const ROWS: usize = 4;

/// Elements of a group.
const GROUP: usize = 32;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &MatmulParams = bytemuck::from_bytes(params);
    let act_format = ActFormat::read_by(key);
    let format = WeightFormat::of_key(key);
    let scaling = Scaling::of(format, act_format);
    let (act, w, ws, rstd) = (bound.u32s(0), bound.u32s(1), bound.u32s(2), bound.f32s(3));
    let bias = bound.f32s(4);
    let y = bound.f32s_mut(5);
    let tokens = (key.value("STEP") * grid[tile_dimension(key)]).min(p.tokens);

    // Inputs as rows, and the sums of their groups.
    let inputs: Vec<_> = (0..tokens)
        .map(|token| act::row(act_format, act, token, p.act_stride, p.groups))
        .collect();

    let row = |row| Row::new(format, p.groups, w, ws, row);
    multiply(
        scaling,
        (p.rows, p.groups),
        row,
        &inputs,
        |token, row, t| {
            let scale = if p.norm != 0 { rstd[token] } else { 1.0 };
            let column = p.y_offset as usize + row;
            let bias = if p.bias != 0 { bias[column] } else { 0.0 };
            let t = fma(t, scale, bias);
            let y = &mut y[token * p.y_stride as usize + column];
            *y = if p.add != 0 { *y + t } else { t };
        },
    );
}

/// Every element of a matrix's product with inputs, each a row and the sums of its groups: tells its
/// token, its row and what it is.
pub(super) fn multiply<'a>(
    scaling: Scaling,
    (rows, groups): (u32, u32),
    row: impl Fn(usize) -> Row<'a>,
    inputs: &[(Vec<f32>, Vec<Sums>)],
    mut done: impl FnMut(usize, usize, f32),
) {
    let mut codes = vec![[0.0; ROWS * GROUP]; groups as usize];
    let mut scales = vec![[Scale::default(); ROWS]; groups as usize];
    let matrix = rows as usize;
    for first in (0..matrix).step_by(ROWS) {
        let rows = ROWS.min(matrix - first);
        for r in 0..rows {
            let row = row(first + r);
            for (g, (codes, scales)) in (0..).zip(codes.iter_mut().zip(&mut scales)) {
                let codes = &mut codes[r * GROUP..][..GROUP];
                row.codes(g, scaling, codes.try_into().expect("a group"));
                scales[r] = row.scale(g, scaling);
            }
        }
        for (token, (x, sums)) in inputs.iter().enumerate() {
            let total = rows_dot(scaling, &codes, &scales, x, sums);
            for (i, &t) in total[..rows].iter().enumerate() {
                done(token, first + i, t);
            }
        }
    }
}

/// The chain of [`ROWS`] elements of one token.
fn rows_dot(
    scaling: Scaling,
    codes: &[[f32; ROWS * GROUP]],
    scales: &[[Scale; ROWS]],
    x: &[f32],
    sums: &[Sums],
) -> [f32; ROWS] {
    let mut total = [0.0; ROWS];
    let mut span = [0.0; ROWS];
    for (g, ((codes, scales), x)) in codes
        .iter()
        .zip(scales)
        .zip(x.chunks_exact(GROUP))
        .enumerate()
    {
        let mut dot = [[0.0; 4]; ROWS];
        for j in 0..GROUP / 4 {
            for r in 0..ROWS {
                for c in 0..4 {
                    dot[r][c] = fma(codes[r * GROUP + 4 * j + c], x[4 * j + c], dot[r][c]);
                }
            }
        }
        let s = sums[g];
        for r in 0..ROWS {
            let Scale { d, m, half_m } = scales[r];
            let dot = join(dot[r]);
            span[r] = match scaling {
                Scaling::None => span[r] + dot,
                Scaling::Scale => fma(d, dot, span[r]),
                Scaling::ScaleOffset => fma(m, s.xs, fma(d, dot, span[r])),
                Scaling::CodesNone => fma(s.d, dot, span[r]),
                Scaling::CodesScale => fma(d * s.d, dot, span[r]),
                Scaling::CodesScaleOffset => fma(m, s.xs, fma(d * s.d, dot, span[r])),
                Scaling::CodesHalfOffsets => {
                    let offset = half_m[0] * s.halves[0] + half_m[1] * s.halves[1];
                    fma(m * s.d, offset, fma(d * s.d, dot, span[r]))
                }
            };
        }
        if g % 4 == 3 || g + 1 == sums.len() {
            for r in 0..ROWS {
                total[r] += span[r];
                span[r] = 0.0;
            }
        }
    }
    total
}
