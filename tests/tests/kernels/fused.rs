//! `fused_qkv` and `fused_glu` against the dispatches they stand for, bit for bit on the device, and against
//! the reference.

use crate::step::step_buffer;
use twoclock_core::weights::DType;
use twoclock_shaders::caps::{Caps, Coop, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::fused::{MAX_TOKENS, NormedMatrix, lane_packs, offered};
use twoclock_shaders::kernels::glu::Activation;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::matmul::{MatmulParams, Regime};
use twoclock_shaders::kernels::rope_kv::Pairing;
use twoclock_shaders::kernels::step::{NO_SLOT, NUM_TOKENS, POSITIONS, SLOTS};
use twoclock_shaders::kernels::{fused_glu, fused_qkv, glu, matmul, rms_norm, rope_kv};
use twoclock_shaders::program::{CountId, Dispatch, Slice};
use twoclock_tests::{Case, Noise, Weights, assert_close, gpu};

const TOKENS: CountId = CountId(0);
const EPS: f32 = 1e-5;

/// Where vectors lie among the constants, in words.
const BIAS: usize = 1024 * 9;
const TABLE: usize = 2048 * 9;
const POSITIONS_HELD: usize = 40;

struct Problem {
    weights: Weights,
    x: Vec<f32>,
    constants: Vec<f32>,
    shape: Shape,
}

/// What a matrix is and how it is computed.
#[derive(Clone, Copy, Debug)]
struct Shape {
    dtype: DType,
    k: usize,
    bias: bool,
    act_format: ActFormat,
    tokens: usize,
    lane_packs: u32,
}

impl Problem {
    fn new(shape: Shape, rows: usize) -> Self {
        let mut noise = Noise::new((rows * shape.k + shape.tokens) as u64);
        Self {
            weights: Weights::random(&mut noise, shape.dtype, rows, shape.k),
            x: noise.f32s(shape.tokens * shape.k),
            constants: noise.f32s(TABLE + POSITIONS_HELD * 64),
            shape,
        }
    }

    /// x, w, ws, constants.
    fn inputs(&self) -> Vec<twoclock_tests::Input> {
        let ws = match self.weights.ws.is_empty() {
            true => vec![0],
            false => self.weights.ws.clone(),
        };
        vec![
            self.x.as_slice().into(),
            self.weights.w.as_slice().into(),
            ws.into(),
            self.constants.as_slice().into(),
        ]
    }

    fn constant(&self, constants: Slice, word: usize, words: usize) -> Slice {
        Slice {
            offset: 4 * word as u64,
            bytes: 4 * words as u64,
            ..constants
        }
    }

    fn matrix(&self, b: &[Slice]) -> NormedMatrix {
        let weights = &self.weights;
        NormedMatrix {
            x: b[0],
            w: b[1],
            ws: (!weights.ws.is_empty()).then_some(b[2]),
            constants: b[3],
            gains: self.constant(b[3], 0, weights.k),
            bias: self
                .shape
                .bias
                .then(|| self.constant(b[3], BIAS, weights.rows)),
            act_format: self.shape.act_format,
            format: weights.format,
            groups: weights.groups as u32,
            tokens: self.shape.tokens as u32,
            lane_packs: self.shape.lane_packs,
            eps: EPS,
        }
    }

    /// The norm and the matrix as two: act, rstd, y are the windows given.
    fn apart(&self, b: &[Slice], [act, rstd, y]: [Slice; 3]) -> Vec<Dispatch> {
        let matrix = self.matrix(b);
        let (k, rows) = (self.weights.k as u32, self.weights.rows as u32);
        let act_format = self.shape.act_format;
        let norm = rms_norm::RmsNormParams {
            dim4: k / 4,
            act_stride: act_format.stride(k),
            eps: EPS,
        };
        let norm_buffers = rms_norm::Buffers {
            x: b[0],
            g: matrix.gains,
            out: act,
            rstd,
        };
        let params = MatmulParams {
            rows,
            groups: matrix.groups,
            tokens: self.shape.tokens as u32,
            act_stride: act_format.stride(k),
            y_stride: rows,
            y_offset: 0,
            norm: 0,
            bias: 0,
            add: 0,
        };
        let buffers = matmul::Buffers {
            act,
            w: matrix.w,
            ws: matrix.ws,
            rstd: (!act_format.takes_rstd()).then_some(rstd),
            bias: matrix.bias,
            y,
        };
        // Bodies of processors are soon compiled here, and have the bits of all others.
        let caps = Caps::reference();
        let regime = Regime::choose(&caps, 1);
        vec![
            rms_norm::dispatch(&caps, act_format, norm, TOKENS, norm_buffers),
            matmul::dispatch_regime(regime, matrix.format, act_format, params, TOKENS, buffers),
        ]
    }

    fn scratch(&self) -> [Vec<f32>; 3] {
        let (k, rows) = (self.weights.k, self.weights.rows);
        [k, 1, rows].map(|width| vec![0.0; self.shape.tokens * width])
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Both kernels' cases: short rows that share a workgroup, a token, two; packs by the lane, one; rows that
/// take two passes over their spans; formats with and without scales and offsets.
const SHAPES: [Shape; 4] = [
    Shape {
        dtype: DType::Q4_1,
        k: 320,
        bias: false,
        act_format: ActFormat::F32,
        tokens: 1,
        lane_packs: 1,
    },
    Shape {
        dtype: DType::Q4_1,
        k: 8352,
        bias: true,
        act_format: ActFormat::F32,
        tokens: 1,
        lane_packs: 3,
    },
    Shape {
        dtype: DType::Q8_0,
        k: 576,
        bias: true,
        act_format: ActFormat::F16,
        tokens: 2,
        lane_packs: 4,
    },
    Shape {
        dtype: DType::F16,
        k: 160,
        bias: true,
        act_format: ActFormat::F16,
        tokens: 1,
        lane_packs: 2,
    },
];

#[test]
fn glu_of_a_norm_is_the_same_bits() {
    let [silu, gelu] = Activation::ALL;
    let all = [(68, silu), (36, silu), (12, gelu), (148, silu)];
    for (shape, (rows, activation)) in SHAPES.into_iter().zip(all) {
        let Shape {
            act_format, tokens, ..
        } = shape;
        let problem = Problem::new(shape, 2 * rows);
        // Rows that are no whole groups end in zeros, which stay.
        let out = vec![0_u32; tokens * act_format.row_bytes(rows as u32) as usize / 4];
        let mut inputs = problem.inputs();
        inputs.push(out.into());
        let fused = Case {
            inputs: inputs.clone(),
            dispatches: Box::new(|b| {
                let (matrix, rows) = (problem.matrix(b), rows as u32);
                let fused = fused_glu::dispatch(activation, &matrix, rows, TOKENS, b[4]);
                vec![fused]
            }),
            counts: vec![tokens as u32],
        };
        inputs.extend(problem.scratch().map(twoclock_tests::Input::from));
        let apart = Case {
            inputs,
            dispatches: Box::new(|b| {
                let mut all = problem.apart(b, [b[5], b[6], b[7]]);
                let params = glu::GluParams {
                    dim4: rows as u32 / 4,
                    act_stride: act_format.stride(rows as u32),
                };
                let to = b[4];
                all.push(glu::dispatch(
                    activation,
                    act_format,
                    params,
                    (TOKENS, 1),
                    b[7],
                    to,
                ));
                all
            }),
            counts: vec![tokens as u32],
        };
        let what = format!("{shape:?} {rows}");
        let got = fused.run(&mut *gpu(), 4);
        assert!(bits(&got) == bits(&apart.run(&mut *gpu(), 4)), "{what}");
        let reference = fused.run(&mut CpuExecutor::default(), 4);
        if act_format == ActFormat::F32 {
            assert_close(&what, &got, &reference, 1e-3);
        }
    }
}

#[test]
fn heads_of_a_norm_are_the_same_bits() {
    let (heads, kv_heads, block_size) = (3u32, 2u32, 16);
    let all = [
        (32u32, 16u32, KvDtype::F32, Pairing::Halves),
        (20, 0, KvDtype::F32, Pairing::Halves),
        (24, 4, KvDtype::F16, Pairing::Interleaved),
        (16, 8, KvDtype::F16, Pairing::Halves),
    ];
    for (shape, (head_dim, pairs, kv_dtype, pairing)) in SHAPES.into_iter().zip(all) {
        let rows = (heads + 2 * kv_heads) * head_dim;
        let problem = Problem::new(shape, rows as usize);
        // A second token has no slot.
        let tokens = shape.tokens;
        let slots = [20, NO_SLOT];
        let mut step = step_buffer(&[(SLOTS, &slots[..tokens]), (POSITIONS, &[39, 7][..tokens])]);
        step[NUM_TOKENS] = tokens as u32;
        let page = kv_dtype.page_bytes(kv_heads, head_dim, block_size) as usize / 4;
        let pages = vec![0x4321_u32; 2 * page];
        let table = |b: &[Slice]| {
            let words = POSITIONS_HELD * 2 * pairs as usize;
            (pairs > 0).then(|| problem.constant(b[3], TABLE, words))
        };
        let mut inputs = problem.inputs();
        let [act, rstd, y] = problem.scratch();
        inputs.extend([step.into(), y.into(), pages.clone().into(), pages.into()]);
        let counts = vec![tokens as u32];
        let fused = Case {
            inputs: inputs.clone(),
            dispatches: Box::new(|b| {
                let all = fused_qkv::Heads {
                    heads,
                    kv_heads,
                    head_dim,
                    pairs,
                    pairing,
                    table: table(b),
                };
                let buffers = fused_qkv::Buffers {
                    step: b[4],
                    qkv: b[5],
                    kcache: b[6],
                    vcache: b[7],
                    dtype: kv_dtype,
                    block_size,
                    group: 0,
                };
                let matrix = problem.matrix(b);
                let fused = fused_qkv::dispatch(&matrix, &all, TOKENS, buffers);
                vec![fused.expect("pairs and pages that it takes")]
            }),
            counts: counts.clone(),
        };
        inputs.extend([act.into(), rstd.into()]);
        let apart = Case {
            inputs,
            dispatches: Box::new(|b| {
                let mut all = problem.apart(b, [b[8], b[9], b[5]]);
                let params = rope_kv::RopeKvParams {
                    heads,
                    kv_heads,
                    pairs,
                    stride4: rows / 4,
                    block_size,
                    group: 0,
                };
                let buffers = rope_kv::Buffers {
                    table: table(b),
                    step: b[4],
                    qkv: b[5],
                    kcache: b[6],
                    vcache: b[7],
                    dtype: kv_dtype,
                };
                all.push(rope_kv::dispatch(
                    pairing, head_dim, params, TOKENS, buffers,
                ));
                all
            }),
            counts,
        };
        let what = format!("{shape:?}, {pairing:?} {head_dim} {pairs}");
        let queries = |qkv: Vec<f32>| -> Vec<u32> {
            let rows = qkv.chunks_exact(rows as usize);
            let queries = rows.flat_map(|row| &row[..(heads * head_dim) as usize]);
            queries.map(|v| v.to_bits()).collect()
        };
        let [fused_q, apart_q] = [&fused, &apart].map(|case| queries(case.run(&mut *gpu(), 5)));
        assert!(fused_q == apart_q, "{what}: queries");
        for output in [6, 7] {
            let got = fused.run(&mut *gpu(), output);
            let expected = apart.run(&mut *gpu(), output);
            assert!(bits(&got) == bits(&expected), "{what}: pages {output}");
            let reference = fused.run(&mut CpuExecutor::default(), output);
            if kv_dtype == KvDtype::F32 && shape.act_format == ActFormat::F32 {
                assert_close(&what, &got, &reference, 1e-3);
            }
            let written = |pages: &[f32]| pages.iter().filter(|v| v.to_bits() != 0x4321).count();
            assert_eq!(written(&got), written(&reference), "{what}: pages {output}");
        }
    }
}

#[test]
fn offered_to_gpus_for_few_tokens() {
    let gpu = Caps::portable_gpu();
    let cpu = Caps {
        kind: DeviceKind::Cpu,
        ..gpu.clone()
    };
    let coop = Caps {
        coop: Some(Coop { subgroup: 32 }),
        ..gpu.clone()
    };
    let format = ActFormat::F32;
    assert!(offered(&gpu, format, MAX_TOKENS, 4096));
    assert!(!offered(&gpu, format, MAX_TOKENS + 1, 4096));
    assert!(!offered(&gpu, ActFormat::Int8, 1, 4096));
    for other in [cpu, coop] {
        assert!(!offered(&other, format, 1, 4096));
    }
    assert!(!offered(&gpu, format, 1, 100));
    assert!(!offered(&gpu, format, 1, 128));
}

#[test]
fn lanes_have_many_rows_where_workgroups_are_many() {
    // Llama 3 8B's gates and ups, its queries, keys and values; those of SmolLM2 135M.
    let packs = [(28672, 128), (6144, 128), (3072, 18), (960, 18)];
    assert_eq!(
        packs.map(|(rows, groups)| lane_packs(rows, groups)),
        [4, 4, 1, 1]
    );
}
