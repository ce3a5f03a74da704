//! Reference of [`crate::kernels::fused_glu`].

use super::bound::Window;
use super::fused::{self, NOWHERE, Normed};
use super::{Bound, glu};
use crate::kernel::KernelKey;
use crate::kernels::fused::act_format_of;
use crate::kernels::fused_glu::FusedGluParams;
use crate::kernels::glu::Activation;
use crate::kernels::weight::WeightFormat;
use crate::program::CountId;
use bytemuck::cast_slice;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &FusedGluParams = bytemuck::from_bytes(params);
    let constants = bound.f32s(3);
    let tokens = p.tokens.min(grid[1] * key.value("TOKENS"));
    let normed = Normed {
        format: WeightFormat::of_key(key),
        act_format: act_format_of(key),
        rows: 2 * p.rows,
        groups: p.groups,
        tokens,
        gains: fused::vector(constants, 4 * p.gains4, 32 * p.groups),
        bias: fused::bias(constants, p.bias, 2 * p.rows),
        eps: p.eps,
    };
    let y = normed.product(bound);
    let params = crate::kernels::glu::GluParams {
        dim4: p.rows / 4,
        act_stride: p.act_stride,
    };
    let gate = crate::kernels::glu::dispatch(
        Activation::of(key),
        act_format_of(key),
        params,
        (CountId(0), 1),
        NOWHERE,
        NOWHERE,
    );
    let windows = vec![
        Window::Read(cast_slice(&y)),
        Window::ReadWrite(Some(bound.u32s_mut(4))),
    ];
    fused::run(glu::run, &gate, windows, [1, tokens, 1]);
}
