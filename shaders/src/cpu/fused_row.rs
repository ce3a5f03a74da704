//! What the references of processors' fused kernels share: inputs with sums of squares behind them.

use super::Bound;
use super::fused::{self, Product};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::fused_row::squares_at4;
use crate::kernels::weight::WeightFormat;

/// Reciprocal of the root mean square of so many groups, whose sums of squares lie behind them.
fn rstd(act_format: ActFormat, act: &[u32], groups: u32, eps: f32) -> f32 {
    let first = squares_at4(act_format, groups);
    let sums = (first..first + groups).map(|chunk| f32::from_bits(act[4 * chunk as usize]));
    let sum = sums.fold(0.0, |sum, s| sum + s);
    1.0 / (sum / (32 * groups) as f32 + eps).sqrt()
}

/// The product of a matrix and the kernel's one input, f32 `[rows]`: `eps` where a norm comes before it. The
/// kernel's first bindings are act, w, ws and constants, of which the bias begins at `bias`.
pub(super) fn product(
    key: &KernelKey,
    bound: &Bound<'_>,
    (rows, groups): (u32, u32),
    bias: u32,
    eps: Option<f32>,
) -> Vec<f32> {
    let act_format = ActFormat::read_by(key);
    let act = bound.u32s(0);
    let rstd = eps.map(|eps| [rstd(act_format, act, groups, eps).to_bits()]);
    let product = Product {
        format: WeightFormat::of_key(key),
        act_format,
        rows,
        groups,
        tokens: 1,
        rstd: rstd.as_ref().map(<[u32; 1]>::as_slice),
        bias: fused::bias(bound.f32s(3), bias, rows),
    };
    product.of(act, bound.u32s(1), bound.u32s(2))
}
