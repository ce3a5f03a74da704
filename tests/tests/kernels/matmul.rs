//! `matmul`: every regime, body and format on the device under test against double precision and
//! against the reference, and bit for bit against each other whatever the number of tokens.

use twoclock_core::weights::DType;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::{Buffers, MatmulParams, Regime, dispatch_regime};
use twoclock_shaders::program::{CountId, Slice};
use twoclock_tests::{Case, Noise, Weights, gpu, rounded, widened};

/// Outputs lie at an offset in wider rows, as a window of a vocabulary does.
const OFFSET: usize = 3;
const SLACK: usize = 5;
/// What the kernel must not touch.
const UNTOUCHED: f32 = 12345.0;

pub(crate) struct Problem {
    pub(crate) weights: Weights,
    act_format: ActFormat,
    /// Inputs as stored.
    act: Vec<u32>,
    /// What they stand for, rows padded to whole groups.
    x: Vec<f64>,
    rstd: Option<Vec<f32>>,
    bias: Option<Vec<f32>>,
    /// Whether the product joins what y holds.
    add: bool,
}

impl Problem {
    pub(crate) fn new(
        seed: u64,
        dtype: DType,
        act_format: ActFormat,
        (rows, k): (usize, usize),
        tokens: usize,
    ) -> Self {
        let mut noise = Noise::new(seed);
        let weights = Weights::random(&mut noise, dtype, rows, k);
        let act = rounded(act_format, &noise.f32s(tokens * k), k);
        let x = widened(act_format, &act);
        // Every other shape behaves as the matmul after a norm.
        let rstd = (rows % 2 == 1).then(|| (0..tokens).map(|_| 1.5 + noise.f32()).collect());
        Self {
            weights,
            act_format,
            act,
            x,
            rstd,
            bias: None,
            add: false,
        }
    }

    /// The case for the first `tokens` tokens.
    pub(crate) fn case(&self, regime: Regime, tokens: usize) -> Case<'_> {
        let (weights, act_format) = (&self.weights, self.act_format);
        let (rows, k) = (weights.rows, weights.k);
        let y = vec![UNTOUCHED; tokens * (rows + SLACK)];
        let mut inputs = vec![
            self.act[..tokens * act_format.row_bytes(k as u32) as usize / 4].into(),
            weights.w.as_slice().into(),
            y.into(),
        ];
        let mut more = |present: bool, input: twoclock_tests::Input| {
            present.then(|| {
                inputs.push(input);
                inputs.len() - 1
            })
        };
        let ws = more(!weights.ws.is_empty(), weights.ws.as_slice().into());
        let rstd = more(
            self.rstd.is_some(),
            self.rstd.as_deref().unwrap_or(&[])
                [..tokens.min(self.rstd.as_ref().map_or(0, Vec::len))]
                .into(),
        );
        let bias = more(
            self.bias.is_some(),
            self.bias.as_deref().unwrap_or(&[]).into(),
        );
        let add = u32::from(self.add);
        Case {
            inputs,
            dispatches: Box::new(move |b: &[Slice]| {
                let params = MatmulParams {
                    rows: rows as u32,
                    groups: weights.groups as u32,
                    tokens: tokens as u32,
                    act_stride: act_format.stride(k as u32),
                    y_stride: (rows + SLACK) as u32,
                    y_offset: OFFSET as u32,
                    norm: 0,
                    bias: 0,
                    add,
                };
                let buffers = Buffers {
                    act: b[0],
                    w: b[1],
                    ws: ws.map(|i| b[i]),
                    rstd: rstd.map(|i| b[i]),
                    bias: bias.map(|i| b[i]),
                    y: b[2],
                };
                vec![dispatch_regime(
                    regime,
                    weights.format,
                    act_format,
                    params,
                    CountId(0),
                    buffers,
                )]
            }),
            counts: vec![tokens as u32],
        }
    }

    /// Expected output and Σ|w x| in double precision.
    fn exact(&self, token: usize, row: usize) -> (f64, f64) {
        let k = self.weights.k;
        let products = self.weights.values[row * k..][..k]
            .iter()
            .zip(&self.x[token * k.next_multiple_of(32)..][..k])
            .map(|(&w, &x)| f64::from(w) * x);
        let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
        let rstd = self.rstd.as_ref().map_or(1.0, |r| f64::from(r[token]));
        (sum * rstd, size * rstd)
    }

    pub(crate) fn assert_close(&self, what: &str, y: &[f32], tokens: usize) {
        let stride = self.weights.rows + SLACK;
        assert_eq!(y.len(), tokens * stride, "{what}");
        for (token, y) in y.chunks_exact(stride).enumerate() {
            for (i, &v) in y.iter().enumerate() {
                match i.checked_sub(OFFSET).filter(|&row| row < self.weights.rows) {
                    Some(row) => {
                        let (expected, size) = self.exact(token, row);
                        assert!(
                            (f64::from(v) - expected).abs() <= 1e-5 * size,
                            "{what}: token {token} row {row}: got {v}, expected {expected}"
                        );
                    }
                    None => assert_eq!(v, UNTOUCHED, "{what}: token {token} wrote outside, at {i}"),
                }
            }
        }
    }
}

const SHAPES: [(usize, usize); 7] = [
    (7, 32),
    (1, 64),
    (64, 96),
    (192, 320),
    (513, 576),
    (64, 1536),
    // More than 64 spans: a GEMV needs a second pass.
    (9, 8352),
];

/// Enough for formats that differ from those above in how codes and scales are read.
const FEW_SHAPES: [(usize, usize); 3] = [(7, 32), (65, 320), (192, 576)];

/// The same in super-blocks of 256.
const SUPER_SHAPES: [(usize, usize); 3] = [(7, 256), (65, 1280), (192, 768)];

const TOKENS: [usize; 10] = [1, 2, 3, 7, 8, 9, 34, 64, 65, 130];

fn check(dtype: DType, shapes: &[(usize, usize)]) {
    // The device is let go before it is asked for again.
    let regimes = Regime::all(gpu().caps());
    check_in(ActFormat::F32, dtype, shapes, &regimes);
}

fn check_in(act_format: ActFormat, dtype: DType, shapes: &[(usize, usize)], regimes: &[Regime]) {
    let caps = gpu().caps().clone();
    for &(rows, k) in shapes {
        let problem = Problem::new((rows * k) as u64, dtype, act_format, (rows, k), 130);
        let what = |regime: Regime, n: usize| {
            format!("{act_format:?} {dtype} {rows} × {k} × {n}, {regime:?}")
        };

        let regime = Regime::choose(&Caps::reference(), 130);
        let reference = problem
            .case(regime, 130)
            .run(&mut CpuExecutor::default(), 2);
        problem.assert_close("reference", &reference, 130);
        let few = problem.case(regime, 7).run(&mut CpuExecutor::default(), 2);
        assert!(
            few == reference[..few.len()],
            "the reference depends on the number of tokens"
        );

        let all = problem.case(regimes[0], 130).run(&mut *gpu(), 2);
        problem.assert_close(&what(regimes[0], 130), &all, 130);

        // The same bits for every number of tokens, regime and body.
        for n in TOKENS {
            let expected = &all[..n * (rows + SLACK)];
            for &regime in regimes {
                let chosen = [DeviceKind::Cpu, DeviceKind::Gpu].iter().any(|&kind| {
                    let caps = Caps {
                        kind,
                        ..caps.clone()
                    };
                    regime == Regime::choose(&caps, n as u32)
                });
                if chosen || n == 130 {
                    let y = problem.case(regime, n).run(&mut *gpu(), 2);
                    let first = y
                        .iter()
                        .zip(expected)
                        .position(|(a, b)| a.to_bits() != b.to_bits());
                    assert_eq!(first, None, "{}: first different element", what(regime, n));
                }
            }
        }
    }
}

#[test]
fn f32_all_regimes_same_bits() {
    check(DType::F32, &SHAPES);
}

#[test]
fn f16_all_regimes_same_bits() {
    check(DType::F16, &SHAPES);
}

#[test]
fn bf16_all_regimes_same_bits() {
    check(DType::BF16, &FEW_SHAPES);
}

#[test]
fn q8_0_all_regimes_same_bits() {
    check(DType::Q8_0, &SHAPES);
}

#[test]
fn q4_0_all_regimes_same_bits() {
    check(DType::Q4_0, &SHAPES);
}

#[test]
fn q4_1_all_regimes_same_bits() {
    check(DType::Q4_1, &FEW_SHAPES);
}

#[test]
fn q5_0_all_regimes_same_bits() {
    check(DType::Q5_0, &FEW_SHAPES);
}

#[test]
fn q5_1_all_regimes_same_bits() {
    check(DType::Q5_1, &FEW_SHAPES);
}

#[test]
fn iq4_nl_all_regimes_same_bits() {
    check(DType::Iq4Nl, &FEW_SHAPES);
}

#[test]
fn mxfp4_all_regimes_same_bits() {
    check(DType::Mxfp4, &FEW_SHAPES);
}

#[test]
fn q2_k_all_regimes_same_bits() {
    check(DType::Q2K, &SUPER_SHAPES);
}

#[test]
fn q3_k_all_regimes_same_bits() {
    check(DType::Q3K, &SUPER_SHAPES);
}

#[test]
fn q4_k_all_regimes_same_bits() {
    check(DType::Q4K, &SUPER_SHAPES);
}

#[test]
fn q5_k_all_regimes_same_bits() {
    check(DType::Q5K, &SUPER_SHAPES);
}

#[test]
fn q6_k_all_regimes_same_bits() {
    check(DType::Q6K, &SUPER_SHAPES);
}

#[test]
fn iq4_xs_all_regimes_same_bits() {
    check(DType::Iq4Xs, &SUPER_SHAPES);
}

/// Every way of reading codes and of scaling them, over whole numbers as singles and as bytes.
#[test]
fn every_format_over_bytes_same_bits() {
    use DType::{BF16, F16, F32, Iq4Nl, Q2K, Q3K, Q4_0, Q4_1, Q5_1, Q6K, Q8_0};
    let all = Regime::all(gpu().caps());
    // The others differ in numbers, or in what singles show as well: one body for each arithmetic.
    let few: Vec<Regime> = [1, 34]
        .map(|tokens| Regime::choose(&cpu_caps(), tokens))
        .into_iter()
        .chain([Regime::gemv(1)])
        .collect();
    for dtype in DType::ALL {
        let regimes = match dtype {
            F32 | Q8_0 | Q4_0 | Q5_1 | Q2K | Q3K | Q6K | Iq4Nl => &all,
            F16 | BF16 => continue,
            _ => &few,
        };
        let k = if dtype.block_elements() == 256 {
            1280
        } else {
            320
        };
        check_in(ActFormat::Int8, dtype, &[(65, k)], regimes);
    }
    // A short last span, rows alone, more spans than a GEMV takes at a time.
    check_in(
        ActFormat::Int8,
        Q4_1,
        &[(7, 32), (192, 576), (9, 8352)],
        &all,
    );
}

fn cpu_caps() -> Caps {
    Caps {
        kind: DeviceKind::Cpu,
        ..gpu().caps().clone()
    }
}

/// Halves are read into the chain of singles.
#[test]
fn halves_same_bits() {
    let regimes = Regime::all(gpu().caps());
    check_in(ActFormat::F16, DType::Q4_0, &FEW_SHAPES, &regimes);
    // Codes that are weights.
    let few = [1, 34].map(|tokens| Regime::choose(&cpu_caps(), tokens));
    check_in(ActFormat::F16, DType::F16, &FEW_SHAPES, &few);
}

/// A bias and the residual stream: the bits of sums made apart, in every body.
#[test]
fn bias_and_residual_join_at_the_end() {
    let caps = gpu().caps().clone();
    let (rows, k, tokens) = (64, 320, 9);
    let mut problem = Problem::new(3, DType::Q4_1, ActFormat::F32, (rows, k), tokens);
    let stride = rows + SLACK;
    for regime in Regime::all(&caps) {
        (problem.bias, problem.add) = (None, false);
        let mut expected = problem.case(regime, tokens).run(&mut *gpu(), 2);
        let bias = Noise::new(4).f32s(OFFSET + rows);
        for y in expected.chunks_exact_mut(stride) {
            for (y, bias) in y.iter_mut().zip(&bias).skip(OFFSET) {
                *y = UNTOUCHED + (*y + bias);
            }
        }
        (problem.bias, problem.add) = (Some(bias), true);
        let case = problem.case(regime, tokens);
        assert_eq!(case.run(&mut *gpu(), 2), expected, "{regime:?}");
    }
    let regime = Regime::choose(&Caps::reference(), 9);
    let cpu = &mut CpuExecutor::default();
    let mut reference = |problem: &Problem| problem.case(regime, tokens).run(cpu, 2);
    let joined = reference(&problem);
    let bias = problem.bias.take().unwrap_or_default();
    problem.add = false;
    let plain = reference(&problem);
    for (token, joined) in joined.chunks_exact(stride).enumerate() {
        for i in OFFSET..OFFSET + rows {
            let sum = UNTOUCHED + (plain[token * stride + i] + bias[i]);
            assert_eq!(joined[i], sum, "the reference, token {token}");
        }
    }
    // Behind a norm the bias comes last.
    let mut problem = Problem::new(5, DType::Q8_0, ActFormat::F32, (65, 64), 3);
    let case = |problem: &Problem, regime: Regime| problem.case(regime, 3).run(&mut *gpu(), 2);
    let expected = case(&problem, Regime::GEMM);
    problem.bias = Some(vec![0.5; OFFSET + 65]);
    let joined = case(&problem, Regime::GEMM);
    for (i, (got, plain)) in joined.iter().zip(&expected).enumerate() {
        if (OFFSET..OFFSET + 65).contains(&(i % (65 + SLACK))) {
            assert!((got - (plain + 0.5)).abs() <= 1e-5, "{got} {plain}");
        }
    }
    for regime in Regime::all(&caps) {
        assert_eq!(case(&problem, regime), joined, "{regime:?}");
    }
}
