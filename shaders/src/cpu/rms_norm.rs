//! Reference of [`crate::kernels::rms_norm`].

use super::{Bound, act, fma, join};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::rms_norm::RmsNormParams;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &RmsNormParams = bytemuck::from_bytes(params);
    let format = ActFormat::stored_by(key);
    let (x, g) = (bound.f32s(0), bound.f32s(1));
    let (out, rstd) = (bound.u32s_mut(2), bound.f32s_mut(3));
    let dim = 4 * p.dim4 as usize;
    let tokens = (grid[0] * key.value("TOKENS")) as usize;
    for token in 0..tokens.min(rstd.len()) {
        let row = &x[token * dim..][..dim];
        rstd[token] = self::rstd(row, p.eps);
        let mut gained: Vec<f32> = row.iter().zip(g).map(|(v, w)| v * w).collect();
        if format.takes_rstd() {
            gained.iter_mut().for_each(|v| *v *= rstd[token]);
        }
        act::store(format, out, (token as u32, 0, p.act_stride), &gained);
    }
}

/// Reciprocal of a row's root mean square: slots of 32 consecutive elements, each a chain of its
/// own, summed in order.
pub(super) fn rstd(row: &[f32], eps: f32) -> f32 {
    let slots = row.chunks(32).map(squares);
    let sum = slots.fold(0.0, |sum, s| sum + s);
    1.0 / (sum / row.len() as f32 + eps).sqrt()
}

/// Sum of squares of a slot.
pub(super) fn squares(slot: &[f32]) -> f32 {
    let mut s = [0.0; 4];
    for v in slot.chunks_exact(4) {
        for c in 0..4 {
            s[c] = fma(v[c], v[c], s[c]);
        }
    }
    join(s)
}
