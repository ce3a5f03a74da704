//! What the references of the fused kernels share: they run those of the kernels that they join, one after
//! the other.

use super::bound::Window;
use super::{Bound, matmul, rms_norm};
use crate::caps::Caps;
use crate::kernel::KernelKey;
use crate::kernels::act::ActFormat;
use crate::kernels::fused::NO_BIAS;
use crate::kernels::matmul::{MatmulParams, Regime};
use crate::kernels::weight::WeightFormat;
use crate::program::{BufferId, CountId, Dispatch, Slice};
use bytemuck::{cast_slice, cast_slice_mut};

/// What stands for windows where only keys and parameters are asked for.
pub(super) const NOWHERE: Slice = Slice {
    buffer: BufferId(0),
    offset: 0,
    bytes: 0,
};

/// A norm and a matrix behind it.
pub(super) struct Normed<'a> {
    pub(super) format: WeightFormat,
    pub(super) act_format: ActFormat,
    pub(super) rows: u32,
    pub(super) groups: u32,
    pub(super) tokens: u32,
    pub(super) gains: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) eps: f32,
}

impl Normed<'_> {
    /// f32 `[tokens][rows]`.
    pub(super) fn product(&self, bound: &Bound<'_>) -> Vec<f32> {
        let tokens = self.tokens as usize;
        let dim = 32 * self.groups;
        let act_format = self.act_format;
        let act_stride = act_format.stride(dim);
        let mut act = vec![0; tokens * act_format.row_bytes(dim) as usize / 4];
        let mut rstd = vec![0; tokens];
        let norm = crate::kernels::rms_norm::dispatch(
            &Caps::portable_gpu(),
            act_format,
            crate::kernels::rms_norm::RmsNormParams {
                dim4: dim / 4,
                act_stride,
                eps: self.eps,
            },
            CountId(0),
            crate::kernels::rms_norm::Buffers {
                x: NOWHERE,
                g: NOWHERE,
                out: NOWHERE,
                rstd: NOWHERE,
            },
        );
        let windows = vec![
            Window::Read(bound.u32s(0)),
            Window::Read(cast_slice(self.gains)),
            Window::ReadWrite(Some(&mut act)),
            Window::ReadWrite(Some(&mut rstd)),
        ];
        run(rms_norm::run, &norm, windows, [self.tokens, 1, 1]);
        let product = Product {
            format: self.format,
            act_format,
            rows: self.rows,
            groups: self.groups,
            tokens: self.tokens,
            rstd: (!act_format.takes_rstd()).then_some(&*rstd),
            bias: self.bias,
        };
        product.of(&act, bound.u32s(1), bound.u32s(2))
    }
}

/// A matrix and what its inputs are.
pub(super) struct Product<'a> {
    pub(super) format: WeightFormat,
    pub(super) act_format: ActFormat,
    pub(super) rows: u32,
    pub(super) groups: u32,
    pub(super) tokens: u32,
    /// Bits of singles, one a token, where a norm comes before the matrix.
    pub(super) rstd: Option<&'a [u32]>,
    pub(super) bias: Option<&'a [f32]>,
}

impl Product<'_> {
    /// f32 `[tokens][rows]`.
    pub(super) fn of(&self, act: &[u32], w: &[u32], ws: &[u32]) -> Vec<f32> {
        let params = MatmulParams {
            rows: self.rows,
            groups: self.groups,
            tokens: self.tokens,
            act_stride: self.act_format.stride(32 * self.groups),
            y_stride: self.rows,
            y_offset: 0,
            norm: 0,
            bias: 0,
            add: 0,
        };
        let buffers = crate::kernels::matmul::Buffers {
            act: NOWHERE,
            w: NOWHERE,
            ws: None,
            rstd: self.rstd.map(|_| NOWHERE),
            bias: self.bias.map(|_| NOWHERE),
            y: NOWHERE,
        };
        let matrix = crate::kernels::matmul::dispatch_regime(
            Regime::gemv(1),
            self.format,
            self.act_format,
            params,
            CountId(0),
            buffers,
        );
        let mut y = vec![0.0; (self.tokens * self.rows) as usize];
        let windows = vec![
            Window::Read(act),
            Window::Read(w),
            Window::Read(ws),
            Window::Read(self.rstd.unwrap_or(&[])),
            Window::Read(cast_slice(self.bias.unwrap_or(&[]))),
            Window::ReadWrite(Some(cast_slice_mut(&mut y))),
        ];
        run(matmul::run, &matrix, windows, [1, self.tokens, 1]);
        y
    }
}

pub(super) type Run = fn(&KernelKey, &[u8], &mut Bound<'_>, [u32; 3]);

pub(super) fn run(kernel: Run, dispatch: &Dispatch, windows: Vec<Window<'_>>, grid: [u32; 3]) {
    kernel(&dispatch.key, &dispatch.params, &mut Bound(windows), grid);
}

pub(super) fn vector(constants: &[f32], first: u32, len: u32) -> &[f32] {
    &constants[first as usize..][..len as usize]
}

pub(super) fn bias(constants: &[f32], first: u32, len: u32) -> Option<&[f32]> {
    (first != NO_BIAS).then(|| vector(constants, first, len))
}
