//! `matmul_coop`: its reference against double precision, whatever the tiling; and the device under
//! test against the reference, and its tilings bit for bit against each other, where it has
//! cooperative matrices.

use half::f16;
use twoclock_core::weights::DType;
use twoclock_shaders::caps::{Caps, Coop};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::matmul::{Buffers, MatmulParams};
use twoclock_shaders::kernels::matmul_coop::dispatch;
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, Weights, gpu};

struct Problem {
    weights: Weights,
    /// Inputs, halves as singles.
    x: Vec<f32>,
    rstd: Vec<f32>,
}

impl Problem {
    fn new(dtype: DType, rows: usize, k: usize, tokens: usize) -> Self {
        let mut noise = Noise::new((rows + k) as u64);
        let weights = Weights::random(&mut noise, dtype, rows, k);
        let half = |v: f32| f16::from_f32(v).to_f32();
        let x = noise.f32s(tokens * k).into_iter().map(half).collect();
        let rstd = (0..tokens).map(|_| 1.5 + noise.f32()).collect();
        Self { weights, x, rstd }
    }

    /// The first tokens, computed where there is room for `room`, which chooses the tiling.
    fn run(&self, executor: &mut impl Executor, coop: Coop, tokens: usize, room: u32) -> Vec<f32> {
        let weights = &self.weights;
        let (rows, k) = (weights.rows, weights.k);
        let halves = self.x[..tokens * k].chunks_exact(2).map(|pair| {
            let [low, high] = [pair[0], pair[1]].map(|v| u32::from(f16::from_f32(v).to_bits()));
            low | (high << 16)
        });
        let mut act: Vec<u32> = halves.collect();
        act.resize(room as usize * k / 2, 0);
        let mut rstd = self.rstd[..tokens].to_vec();
        rstd.resize(room as usize, 0.0);
        let mut inputs = vec![
            act.into(),
            weights.w.as_slice().into(),
            rstd.into(),
            vec![0.0f32; room as usize * rows].into(),
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
                    y_stride: rows as u32,
                    y_offset: 0,
                    norm: 0,
                    bias: 0,
                    add: 0,
                };
                let buffers = Buffers {
                    act: b[0],
                    w: b[1],
                    ws: ws.then(|| b[4]),
                    rstd: Some(b[2]),
                    bias: None,
                    y: b[3],
                };
                let dispatch = dispatch(&caps, weights.format, params, CountId(0), buffers);
                vec![dispatch.expect("a device with cooperative matrices")]
            }),
            counts: vec![tokens as u32],
        };
        case.run(executor, 3)[..tokens * rows].to_vec()
    }

    /// Compares with double precision; `least` is the share of Σ|w x| that may be lost.
    fn assert_close(&self, what: &str, y: &[f32], share: f64) {
        let (rows, k) = (self.weights.rows, self.weights.k);
        for (i, &v) in y.iter().enumerate() {
            let (token, row) = (i / rows, i % rows);
            let products = self.weights.values[row * k..][..k]
                .iter()
                .zip(&self.x[token * k..][..k])
                .map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
            let rstd = f64::from(self.rstd[token]);
            let error = (f64::from(v) - sum * rstd).abs();
            assert!(
                error <= share * size * rstd,
                "{what}: token {token} row {row}: {v}"
            );
        }
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
            assert_eq!(wide[..3 * rows], run(3, 3), "{what}");
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
            let problem = Problem::new(dtype, rows, k, 70);
            let what = format!("{dtype} {rows} × {k}");
            let wide = problem.run(&mut *gpu, coop, 70, 70);
            problem.assert_close(&what, &wide, ROUNDED);
            for (tokens, room) in [(1, 1), (16, 16), (17, 32), (30, 64)] {
                let part = problem.run(&mut *gpu, coop, tokens, room);
                assert_eq!(wide[..tokens * rows], part, "{what}: {tokens} tokens");
            }
        }
    }
}
