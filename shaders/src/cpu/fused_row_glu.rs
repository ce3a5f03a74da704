//! Reference of [`crate::kernels::fused_row_glu`].

use super::bound::Window;
use super::fused::{self, NOWHERE};
use super::{Bound, fused_row, glu};
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::fused_row_glu::FusedRowGluParams;
use crate::kernels::glu::{Activation, GluParams};
use crate::program::CountId;
use bytemuck::cast_slice;

pub(super) fn run(key: &KernelKey, params: &[u8], bound: &mut Bound<'_>, grid: [u32; 3]) {
    let p: &FusedRowGluParams = bytemuck::from_bytes(params);
    if grid.contains(&0) {
        return;
    }
    let y = fused_row::product(key, bound, (2 * p.rows, p.groups), p.bias, Some(p.eps));
    let params = GluParams {
        dim4: p.rows / 4,
        act_stride: p.out_stride,
    };
    let gate = crate::kernels::glu::dispatch(
        Activation::of(key),
        ActFormat::stored_by(key),
        params,
        (CountId(0), 1),
        NOWHERE,
        NOWHERE,
    );
    let windows = vec![
        Window::Read(cast_slice(&y)),
        Window::ReadWrite(Some(bound.u32s_mut(4))),
    ];
    fused::run(glu::run, &gate, windows, [1, 1, 1]);
}
