//! A matrix into a residual stream, the norm behind it and the next matrix: inputs, and the dispatches up to
//! there, apart or joined.

use twoclock_core::weights::DType;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::fused_row::{RowMatrix, squared_bytes};
use twoclock_shaders::kernels::matmul::{MatmulParams, Regime};
use twoclock_shaders::kernels::{fused_row_join, matmul, rms_norm};
use twoclock_shaders::program::{CountId, Dispatch, Slice};
use twoclock_tests::{Input, Noise, Weights};

const TOKENS: CountId = CountId(0);
pub(crate) const EPS: f32 = 1e-5;

/// Where vectors lie among the constants, in words.
const JOIN_BIAS: usize = 2048;
const BIAS: usize = 4096;
pub(crate) const TABLE: usize = 8192;
pub(crate) const POSITIONS_HELD: usize = 40;

/// Places of buffers in every case.
pub(crate) const H: usize = 0;
pub(crate) const CONSTANTS: usize = 1;
pub(crate) const X: usize = 2;
pub(crate) const JOIN: usize = 3;
pub(crate) const NEXT: usize = 5;
const ACT: usize = 7;
const RSTD: usize = 8;
pub(crate) const NORMED: usize = 9;
pub(crate) const Y: usize = 10;
pub(crate) const OUT: usize = 11;

/// Widths, formats and whether there are biases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) act_format: ActFormat,
    dtypes: [DType; 2],
    pub(crate) k: usize,
    pub(crate) hidden: usize,
    pub(crate) bias: bool,
}

/// Short last spans of either matrix, no short ones; packed codes and such as are not; with and without scales
/// and offsets.
pub(crate) const SHAPES: [Shape; 4] = [
    Shape {
        act_format: ActFormat::Int8,
        dtypes: [DType::Q4_1, DType::Q8_0],
        k: 576,
        hidden: 320,
        bias: false,
    },
    Shape {
        act_format: ActFormat::Int8,
        dtypes: [DType::F16, DType::Q4K],
        k: 320,
        hidden: 256,
        bias: true,
    },
    Shape {
        act_format: ActFormat::F32,
        dtypes: [DType::Q8_0, DType::Q4_1],
        k: 256,
        hidden: 96,
        bias: true,
    },
    Shape {
        act_format: ActFormat::F32,
        dtypes: [DType::Q4_0, DType::F16],
        k: 160,
        hidden: 288,
        bias: false,
    },
];

pub(crate) struct Problem {
    shape: Shape,
    join: Weights,
    next: Weights,
    pub(crate) inputs: Vec<Input>,
}

impl Problem {
    pub(crate) fn new(shape: Shape, rows: usize, out_words: usize) -> Self {
        let Shape { k, hidden, .. } = shape;
        let mut noise = Noise::new((rows + k + hidden) as u64);
        let join = Weights::random(&mut noise, shape.dtypes[0], hidden, k);
        let next = Weights::random(&mut noise, shape.dtypes[1], rows, hidden);
        let scales = |weights: &Weights| match weights.ws.is_empty() {
            true => vec![0],
            false => weights.ws.clone(),
        };
        let mut inputs: Vec<Input> = vec![
            noise.f32s(k).into(),
            noise.f32s(TABLE + POSITIONS_HELD * 64).into(),
            noise.f32s(hidden).into(),
        ];
        for weights in [&join, &next] {
            inputs.extend([weights.w.as_slice().into(), scales(weights).into()]);
        }
        let normed = squared_bytes(shape.act_format, hidden as u32 / 32) as usize / 4;
        inputs.extend([
            vec![0_u32; shape.act_format.row_bytes(k as u32) as usize / 4].into(),
            vec![0.0_f32; 1].into(),
            vec![0_u32; normed].into(),
            vec![0.0_f32; rows].into(),
            vec![0_u32; out_words].into(),
        ]);
        Self {
            shape,
            join,
            next,
            inputs,
        }
    }

    pub(crate) fn constant(b: &[Slice], word: usize, words: usize) -> Slice {
        Slice {
            offset: 4 * word as u64,
            bytes: 4 * words as u64,
            ..b[CONSTANTS]
        }
    }

    fn gains(b: &[Slice], words: usize) -> Slice {
        Self::constant(b, 0, words)
    }

    fn weights(&self, place: usize) -> &Weights {
        if place == JOIN {
            &self.join
        } else {
            &self.next
        }
    }

    fn bias(&self, b: &[Slice], place: usize) -> Option<Slice> {
        let word = if place == JOIN { JOIN_BIAS } else { BIAS };
        let rows = self.weights(place).rows;
        self.shape.bias.then(|| Self::constant(b, word, rows))
    }

    fn norm(&self, b: &[Slice], x: usize, width: usize, out: usize) -> Dispatch {
        let act_format = self.shape.act_format;
        let params = rms_norm::RmsNormParams {
            dim4: width as u32 / 4,
            act_stride: act_format.stride(width as u32),
            eps: EPS,
        };
        let buffers = rms_norm::Buffers {
            x: b[x],
            g: Self::gains(b, width),
            out: b[out],
            rstd: b[RSTD],
        };
        rms_norm::dispatch(&Caps::reference(), act_format, params, TOKENS, buffers)
    }

    /// A matrix of either place as the fused kernels take it.
    pub(crate) fn matrix(&self, b: &[Slice], place: usize) -> RowMatrix {
        let weights = self.weights(place);
        RowMatrix {
            act: b[if place == JOIN { ACT } else { NORMED }],
            w: b[place],
            ws: (!weights.ws.is_empty()).then_some(b[place + 1]),
            constants: b[CONSTANTS],
            bias: self.bias(b, place),
            act_format: self.shape.act_format,
            format: weights.format,
            rows: weights.rows as u32,
            groups: weights.groups as u32,
        }
    }

    /// The same by itself: added to x, or after a norm into y.
    pub(crate) fn multiply(&self, caps: &Caps, b: &[Slice], place: usize) -> Dispatch {
        let matrix = self.matrix(b, place);
        let joins = place == JOIN;
        let params = MatmulParams {
            rows: matrix.rows,
            groups: matrix.groups,
            tokens: 1,
            act_stride: matrix.act_format.stride(32 * matrix.groups),
            y_stride: matrix.rows,
            y_offset: 0,
            norm: 0,
            bias: 0,
            add: u32::from(joins),
        };
        let buffers = matmul::Buffers {
            act: matrix.act,
            w: matrix.w,
            ws: matrix.ws,
            rstd: (!joins).then_some(b[RSTD]),
            bias: matrix.bias,
            y: b[if joins { X } else { Y }],
        };
        let regime = Regime::choose(caps, 1);
        let (format, act_format) = (matrix.format, matrix.act_format);
        matmul::dispatch_regime(regime, format, act_format, params, TOKENS, buffers)
    }

    /// To x and the norm's product, apart or joined.
    pub(crate) fn joined(&self, caps: &Caps, b: &[Slice], fused: bool) -> Vec<Dispatch> {
        let mut all = vec![self.norm(b, H, self.shape.k, ACT)];
        if fused {
            let buffers = fused_row_join::Buffers {
                x: b[X],
                gains: Self::gains(b, self.shape.hidden),
                out: b[NORMED],
            };
            let matrix = self.matrix(b, JOIN);
            all.push(fused_row_join::dispatch(&matrix, TOKENS, buffers).expect("whole groups"));
        } else {
            all.push(self.multiply(caps, b, JOIN));
            all.push(self.norm(b, X, self.shape.hidden, NORMED));
        }
        all
    }
}
