//! Reference of [`crate::kernels::sample_edit`].

use super::Bound;
use crate::kernel::KernelKey;
use crate::kernels::sample_edit::{BAN, EDIT_WORDS, LANES, SampleEditParams};

pub(super) fn run(_: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &SampleEditParams = bytemuck::from_bytes(params);
    let edits = bound.u32s(0);
    let logits = bound.f32s_mut(1);
    for i in 0..(grid[0] * LANES).min(edits[0]) as usize {
        let edit = &edits[EDIT_WORDS * (i + 1)..][..EDIT_WORDS];
        let [bias, repetition, minus] = [1, 2, 3].map(|word| f32::from_bits(edit[word]));
        let logit = &mut logits[(edit[0] & !BAN) as usize];
        let mut x = *logit + bias;
        x = if x > 0.0 {
            x / repetition
        } else {
            x * repetition
        };
        x -= minus;
        *logit = if edit[0] & BAN == 0 { x } else { p.banned };
    }
}
