//! `matmul_coop`: its reference against double precision and against its chain, whatever the tiling, with
//! all that joins a product; and the device under test against the reference, and its tilings bit for bit
//! against each other, where it has cooperative matrices.

use half::f16;
use twoclock_core::weights::DType;
use twoclock_shaders::caps::{Caps, Coop};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::matmul::{Buffers, MatmulParams};
use twoclock_shaders::kernels::matmul_coop::dispatch;
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, Weights, gpu};

/// Outputs lie at an offset in wider rows.
const OFFSET: usize = 2;
const SLACK: usize = 3;
/// What y holds before.
const BEFORE: f32 = 0.75;

struct Problem {
    weights: Weights,
    /// Inputs, halves as singles.
    x: Vec<f32>,
    rstd: Option<Vec<f32>>,
    /// Of the outputs of a token, those before the first counted.
    bias: Option<Vec<f32>>,
    /// Whether the product joins what y holds.
    add: bool,
}

impl Problem {
    fn new(dtype: DType, rows: usize, k: usize, tokens: usize) -> Self {
        let mut noise = Noise::new((rows + k) as u64);
        let weights = Weights::random(&mut noise, dtype, rows, k);
        let half = |v: f32| f16::from_f32(v).to_f32();
        let x = noise.f32s(tokens * k).into_iter().map(half).collect();
        let rstd = (0..tokens).map(|_| 1.5 + noise.f32()).collect();
        Self {
            weights,
            x,
            rstd: Some(rstd),
            bias: None,
            add: false,
        }
    }

    /// With a bias and what y holds.
    fn joined(mut self) -> Self {
        let outputs = OFFSET + self.weights.rows;
        self.bias = Some(Noise::new(9).f32s(outputs));
        self.add = true;
        self
    }

    /// Elements from row to row of y.
    fn stride(&self) -> usize {
        self.weights.rows + SLACK
    }

    /// The first tokens, computed where there is room for `room`, which chooses the tiling; rows of
    /// [`stride`](Self::stride).
    fn run(&self, executor: &mut impl Executor, coop: Coop, tokens: usize, room: u32) -> Vec<f32> {
        let weights = &self.weights;
        let (rows, k) = (weights.rows, weights.k);
        let halves = self.x[..tokens * k].chunks_exact(2).map(|pair| {
            let [low, high] = [pair[0], pair[1]].map(|v| u32::from(f16::from_f32(v).to_bits()));
            low | (high << 16)
        });
        let mut act: Vec<u32> = halves.collect();
        act.resize(room as usize * k / 2, 0);
        let or_one = |values: Option<&[f32]>| values.unwrap_or(&[0.0]).to_vec();
        let mut rstd = or_one(self.rstd.as_ref().map(|rstd| &rstd[..tokens]));
        rstd.resize(room as usize, 0.0);
        let mut inputs = vec![
            act.into(),
            weights.w.as_slice().into(),
            rstd.into(),
            vec![BEFORE; room as usize * self.stride()].into(),
            or_one(self.bias.as_deref()).into(),
        ];
        let ws = !weights.ws.is_empty();
        if ws {
            inputs.push(weights.ws.as_slice().into());
        }
        let caps = Caps {
            coop: Some(coop),
            ..executor.caps().clone()
        };
        let case = Case {
            inputs,
            dispatches: Box::new(move |b| {
                let params = MatmulParams {
                    rows: rows as u32,
                    groups: weights.groups as u32,
                    tokens: room,
                    act_stride: weights.groups as u32,
                    y_stride: self.stride() as u32,
                    y_offset: OFFSET as u32,
                    norm: 0,
                    bias: 0,
                    add: u32::from(self.add),
                };
                let buffers = Buffers {
                    act: b[0],
                    w: b[1],
                    ws: ws.then(|| b[5]),
                    rstd: self.rstd.as_ref().map(|_| b[2]),
                    bias: self.bias.as_ref().map(|_| b[4]),
                    y: b[3],
                };
                let dispatch = dispatch(&caps, weights.format, params, CountId(0), buffers);
                vec![dispatch.expect("a device with cooperative matrices")]
            }),
            counts: vec![tokens as u32],
        };
        case.run(executor, 3)[..tokens * self.stride()].to_vec()
    }

    /// Compares with double precision; `share` is that of Σ|w x| that may be lost.
    fn assert_close(&self, what: &str, y: &[f32], share: f64) {
        let (rows, k) = (self.weights.rows, self.weights.k);
        for (i, &v) in y.iter().enumerate() {
            let (token, at) = (i / self.stride(), i % self.stride());
            let Some(row) = at.checked_sub(OFFSET).filter(|&row| row < rows) else {
                assert_eq!(v, BEFORE, "{what}: token {token} wrote outside, at {at}");
                continue;
            };
            let products = self.weights.values[row * k..][..k]
                .iter()
                .zip(&self.x[token * k..][..k])
                .map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
            let rstd = self.rstd.as_ref().map_or(1.0, |r| f64::from(r[token]));
            let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[at]));
            let before = if self.add { f64::from(BEFORE) } else { 0.0 };
            let error = (f64::from(v) - (sum * rstd + bias + before)).abs();
            assert!(
                error <= share * size * rstd,
                "{what}: token {token} row {row}: {v}"
            );
        }
    }

    /// Its chain, written out for weights whose halves are known.
    fn chain(&self, token: usize, row: usize) -> f32 {
        let k = self.weights.k;
        let w = &self.weights.values[row * k..][..k];
        let x = &self.x[token * k..][..k];
        let half = |w: f32| f16::from_f32(w).to_f32();
        let mut total = 0.0;
        for (w, x) in w.chunks(512).zip(x.chunks(512)) {
            let span = w.iter().zip(x);
            total += span.fold(0.0, |a, (&w, &x)| half(w).mul_add(x, a));
        }
        let rstd = self.rstd.as_ref().map_or(1.0, |rstd| rstd[token]);
        let bias = self.bias.as_ref().map_or(0.0, |bias| bias[OFFSET + row]);
        // The reference rounds a product apart where the processor cannot fuse; those of halves are exact.
        let y = match cfg!(target_feature = "fma") {
            true => f32::mul_add(total, rstd, bias),
            false => total * rstd + bias,
        };
        if self.add { BEFORE + y } else { y }
    }
}

/// Half a unit in the last place of a half, and some for the sums.
const ROUNDED: f64 = 0.6 / 1024.0;

const DTYPES: [DType; 7] = [
    DType::F32,
    DType::F16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q4K,
    DType::Q6K,
];

#[test]
fn the_reference_is_a_product_of_halves() {
    let coop = Coop { subgroup: 32 };
    for dtype in DTYPES {
        for (rows, k) in [(7, 256), (33, 1280)] {
            let problem = Problem::new(dtype, rows, k, 20);
            let what = format!("{dtype} {rows} × {k}");
            let run = |tokens, room| problem.run(&mut CpuExecutor::default(), coop, tokens, room);
            let wide = run(20, 70);
            problem.assert_close(&what, &wide, ROUNDED);
            assert_eq!(wide, run(20, 20), "{what}");
            assert_eq!(wide[..3 * problem.stride()], run(3, 3), "{what}");
        }
    }
}

/// A norm, a bias and the residual stream, each with and without: element by element the chain that the
/// kernel's documentation has, for every tiling.
#[test]
fn what_joins_a_product_comes_in_order_at_its_end() {
    let coop = Coop { subgroup: 32 };
    for dtype in [DType::F16, DType::Q4_0] {
        for (norm, joined) in [(false, false), (false, true), (true, false), (true, true)] {
            // Two spans and a half.
            let mut problem = Problem::new(dtype, 33, 1280, 33);
            problem.rstd = problem.rstd.filter(|_| norm);
            let problem = if joined { problem.joined() } else { problem };
            for tokens in [1, 17, 33] {
                let room = tokens as u32;
                let y = problem.run(&mut CpuExecutor::default(), coop, tokens, room);
                let what = format!("{dtype}, norm {norm}, joined {joined}, {tokens} tokens");
                problem.assert_close(&what, &y, ROUNDED);
                for (token, y) in y.chunks_exact(problem.stride()).enumerate() {
                    for (row, y) in y[OFFSET..][..33].iter().enumerate() {
                        assert_eq!(*y, problem.chain(token, row), "{what}: {token}, {row}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_device_that_has_them_agrees_with_itself_and_the_reference() {
    let mut gpu = gpu();
    let Some(coop) = gpu.caps().coop else {
        println!("skipped: the device under test has no cooperative matrices");
        return;
    };
    for dtype in DTYPES {
        for (rows, k) in [(7, 256), (161, 1280)] {
            let plain = Problem::new(dtype, rows, k, 70);
            let joined = Problem::new(dtype, rows, k, 70).joined();
            for (problem, joined) in [(plain, "alone"), (joined, "joined")] {
                let what = format!("{dtype} {rows} × {k} {joined}");
                let wide = problem.run(&mut *gpu, coop, 70, 70);
                problem.assert_close(&what, &wide, ROUNDED);
                for (tokens, room) in [(1, 1), (16, 16), (17, 32), (30, 64)] {
                    let part = problem.run(&mut *gpu, coop, tokens, room);
                    let first = &wide[..tokens * problem.stride()];
                    assert_eq!(first, part, "{what}: {tokens} tokens");
                }
            }
        }
    }
}
