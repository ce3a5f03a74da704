//! Products with chosen experts: pair by pair and in tiles of an expert's pairs, by every body, against
//! double precision and bit for bit against each other.

use crate::moe_group::{random_route, step_of};
use std::time::Instant;
use twoclock_core::weights::DType;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_shaders::kernels::moe_group::{self, Pairs};
use twoclock_shaders::kernels::moe_matmul::{self, MoeMatmulParams};
use twoclock_shaders::program::{CountId, Program, StepArgs};
use twoclock_tests::{Case, Noise, Weights, gpu, rounded, widened};

const UNTOUCHED: f32 = -777.0;
const OFFSET: usize = 2;
const SLACK: usize = 3;

struct Problem {
    act_format: ActFormat,
    /// First expert, and the weights of its window.
    windows: Vec<(u32, Weights)>,
    /// Rows of one expert.
    rows: usize,
    pairs: Pairs,
    tokens: u32,
    /// Whether a token's pairs have one input, which came of a norm.
    shared: bool,
    act: Vec<u32>,
    rstd: Vec<f32>,
    route: Vec<u32>,
}

impl Problem {
    fn pair_count(&self) -> usize {
        (self.tokens * self.pairs.chosen) as usize
    }

    fn stride(&self) -> usize {
        self.rows + SLACK
    }

    /// Buffer 4 is the output.
    fn case(&self, regime: Regime) -> Case<'_> {
        let mut inputs = vec![
            step_of(self.tokens).into(),
            self.route.as_slice().into(),
            self.act.as_slice().into(),
            self.rstd.as_slice().into(),
            vec![UNTOUCHED; self.pair_count() * self.stride()].into(),
            vec![0u32; self.pairs.bytes() as usize / 4].into(),
        ];
        for (_, weights) in &self.windows {
            let mut ws = weights.ws.clone();
            ws.resize(ws.len().max(4), 0);
            inputs.extend([weights.w.as_slice().into(), ws.into()]);
        }
        let caps = Caps {
            kind: match regime {
                Regime::Row { .. } => DeviceKind::Cpu,
                _ => DeviceKind::Gpu,
            },
            ..Caps::reference()
        };
        Case {
            inputs,
            dispatches: Box::new(move |b| {
                let mut dispatches = Vec::new();
                let grouped = regime.tokens() > 1;
                if grouped {
                    let buffers = moe_group::Buffers {
                        step: b[0],
                        route: b[1],
                        pairs: b[5],
                    };
                    dispatches.push(moe_group::dispatch(&caps, self.pairs, regime, buffers));
                }
                for (i, (first_expert, weights)) in self.windows.iter().enumerate() {
                    let params = MoeMatmulParams {
                        rows: self.rows as u32,
                        groups: weights.groups as u32,
                        first_expert: *first_expert,
                        experts: (weights.rows / self.rows) as u32,
                        chosen: 0,
                        share: if self.shared { self.pairs.chosen } else { 1 },
                        order: 0,
                        act_stride: self.act_format.stride(weights.k as u32),
                        y_stride: self.stride() as u32,
                        y_offset: OFFSET as u32,
                        norm: 0,
                    };
                    let buffers = moe_matmul::Buffers {
                        act: b[2],
                        w: b[6 + 2 * i],
                        ws: Some(b[7 + 2 * i]),
                        rstd: self.shared.then_some(b[3]),
                        pairs: if grouped { b[5] } else { b[1] },
                        y: b[4],
                    };
                    let format = weights.format;
                    let product = moe_matmul::dispatch(
                        regime,
                        format,
                        self.act_format,
                        params,
                        self.pairs,
                        buffers,
                    );
                    dispatches.push(product);
                }
                dispatches
            }),
            counts: vec![self.tokens],
        }
    }

    fn assert_close(&self, what: &str, y: &[f32]) {
        let k = self.windows[0].1.k;
        let x = widened(self.act_format, &self.act);
        for (pair, y) in y.chunks_exact(self.stride()).enumerate() {
            let expert = self.route[2 * pair];
            let input = match self.shared {
                true => pair / self.pairs.chosen as usize,
                false => pair,
            };
            let window = self.windows.iter().find(|(first, weights)| {
                expert
                    .checked_sub(*first)
                    .is_some_and(|e| (e as usize) < weights.rows / self.rows)
            });
            for (i, &v) in y.iter().enumerate() {
                let row = i.checked_sub(OFFSET).filter(|&row| row < self.rows);
                let (Some(row), Some((first, weights))) = (row, window) else {
                    assert_eq!(v, UNTOUCHED, "{what}: pair {pair} at {i}");
                    continue;
                };
                let row = (expert - first) as usize * self.rows + row;
                let (sum, size) = weights.values[row * k..][..k]
                    .iter()
                    .zip(&x[input * k.next_multiple_of(32)..])
                    .map(|(&w, &x)| f64::from(w) * x)
                    .fold((0.0, 0.0), |(s, a), p: f64| (s + p, a + p.abs()));
                let scale = match self.shared {
                    true => f64::from(self.rstd[input]),
                    false => 1.0,
                };
                assert!(
                    (f64::from(v) - sum * scale).abs() <= 1e-5 * size,
                    "{what}: pair {pair} row {row}"
                );
            }
        }
    }
}

/// Experts of [`problem`]: two windows hold all but one, which some tokens chose.
const EXPERTS: u32 = 8;

fn problem(
    dtype: DType,
    act_format: ActFormat,
    (rows, k, tokens, chosen, shared): (usize, usize, u32, u32, bool),
) -> Problem {
    let mut noise = Noise::new(rows as u64);
    let k = k.next_multiple_of(dtype.block_elements());
    let windows = [(0, 3), (4, 4)].map(|(first, experts)| {
        let weights = Weights::random(&mut noise, dtype, rows * experts, k);
        (first, weights)
    });
    let inputs = if shared { tokens } else { tokens * chosen } as usize;
    Problem {
        act_format,
        windows: windows.into(),
        rows,
        pairs: Pairs {
            tokens: CountId(0),
            room: tokens + 1,
            chosen,
            experts: EXPERTS,
        },
        tokens,
        shared,
        act: rounded(act_format, &noise.f32s(inputs * k), k),
        rstd: (0..inputs).map(|_| 1.5 + noise.f32()).collect(),
        route: random_route(&mut noise, tokens, chosen, EXPERTS),
    }
}

/// Regimes for processors, which every format is tried with, and those for GPUs.
fn regimes() -> [[Regime; 2]; 2] {
    let caps = |kind| Caps {
        kind,
        ..gpu().caps().clone()
    };
    let processors = caps(DeviceKind::Cpu);
    let rows = [1, 4].map(|tokens| Regime::choose(&processors, tokens));
    [rows, [Regime::gemv(1), Regime::SKINNY]]
}

/// What a problem's bodies give: the reference and the device, each close to double precision, and each
/// the bits of `first`, which are set where there are none yet.
fn assert_same_bits(
    what: &str,
    problem: &Problem,
    regime: Regime,
    first: &mut Option<[Vec<u32>; 2]>,
) {
    let what = format!("{what} {regime:?}");
    let case = problem.case(regime);
    let reference = case.run(&mut CpuExecutor::default(), 4);
    let device = case.run(&mut *gpu(), 4);
    problem.assert_close(&what, &reference);
    problem.assert_close(&what, &device);
    let of_both = [reference, device].map(|y| y.into_iter().map(f32::to_bits).collect());
    let first = first.get_or_insert_with(|| of_both.clone());
    assert!(*first == of_both, "{what}: bits");
}

#[test]
fn pairs_and_tiles_give_the_same_bits() {
    // Each way of reading codes and of scaling them; what is left differs in numbers only.
    use DType::{F32, Mxfp4, Q2K, Q4_0, Q5K, Q6K, Q8_0};
    let singles = [F32, Q8_0, Q4_0, Q2K, Q5K, Q6K, Mxfp4].map(|dtype| (ActFormat::F32, dtype));
    let bytes = [F32, Q4_0, Q2K, Q6K].map(|dtype| (ActFormat::Int8, dtype));
    let halves = [(ActFormat::F16, Q4_0)];
    let [rows, tiles] = regimes();
    for (act_format, dtype) in singles.into_iter().chain(bytes).chain(halves) {
        for shape in [(150, 96, 7, 2, true), (5, 320, 19, 3, false)] {
            let problem = problem(dtype, act_format, shape);
            let mut bodies = rows.to_vec();
            // What differs between formats the bodies share with `matmul`.
            if dtype == Q4_0 {
                bodies.extend(tiles);
            }
            // Where it compiles fastest.
            if (dtype, act_format) == (Q4_0, ActFormat::Int8) {
                bodies.push(Regime::gemv(2));
            }
            let mut bits = None;
            let what = format!("{act_format:?} {dtype} {shape:?}");
            for regime in bodies {
                assert_same_bits(&what, &problem, regime, &mut bits);
            }
        }
    }
}

/// The longest tiles: experts with several of them and with a part of one, in every class of inputs.
#[test]
fn tiles_of_32_give_the_same_bits() {
    let first = (DType::Q4_0, (70, 160, 130, 2, true));
    let second = (DType::Q6K, (5, 256, 130, 2, false));
    for (act_format, (dtype, shape)) in [
        (ActFormat::F32, first),
        (ActFormat::F16, first),
        (ActFormat::Int8, first),
        (ActFormat::Int8, second),
    ] {
        let problem = problem(dtype, act_format, shape);
        let mut of_expert = [0; EXPERTS as usize];
        for pair in problem.route.chunks_exact(2) {
            of_expert[pair[0] as usize] += 1;
        }
        assert!(of_expert.iter().any(|&n| n > 64), "{of_expert:?}");
        assert!(of_expert.iter().any(|&n| n % 32 != 0), "{of_expert:?}");
        let what = format!("{act_format:?} {dtype} {shape:?}");
        let mut bits = None;
        for regime in [regimes()[0][0], Regime::GEMM] {
            assert_same_bits(&what, &problem, regime, &mut bits);
        }
    }
}

/// Figures, not a check: the products of a prompt's tokens pair by pair and in tiles, the grouping
/// counted, with what each reads of weights and computes. `TWOCLOCK_PERF_ACT` is f32, f16 or int8.
#[test]
#[ignore = "prints figures; run by name with --nocapture"]
fn perf() {
    const EXPERTS: u32 = 64;
    const CHOSEN: u32 = 8;
    const ROWS: usize = 768;
    const K: usize = 2048;
    let act_format = match std::env::var("TWOCLOCK_PERF_ACT").as_deref() {
        Ok("f16") => ActFormat::F16,
        Ok("f32") => ActFormat::F32,
        _ => ActFormat::Int8,
    };
    let mut noise = Noise::new(3);
    let one = Weights::random(&mut noise, DType::Q4_0, ROWS, K);
    // All experts are one over and over, but each where it is.
    let all = Weights {
        rows: EXPERTS as usize * ROWS,
        w: one.w.repeat(EXPERTS as usize),
        ws: one.ws.repeat(EXPERTS as usize),
        ..one
    };
    let expert_bytes = ROWS as f64 * all.format.row_bytes(all.groups as u32) as f64;
    let caps = gpu().caps().clone();
    println!("{EXPERTS} experts, {CHOSEN} chosen, {ROWS} × {K}, Q4_0, {act_format:?}");
    println!("tokens body × tile | matrices read | MB | GFLOP | median ms | GFLOP/s | of pairs");
    let mut problem = Problem {
        act_format,
        windows: vec![(0, all)],
        rows: ROWS,
        pairs: Pairs {
            tokens: CountId(0),
            room: 0,
            chosen: CHOSEN,
            experts: EXPERTS,
        },
        tokens: 0,
        shared: true,
        act: Vec::new(),
        rstd: Vec::new(),
        route: Vec::new(),
    };
    for tokens in [8, 16, 32, 64, 256] {
        problem.tokens = tokens;
        problem.pairs.room = tokens;
        problem.act = rounded(act_format, &noise.f32s(tokens as usize * K), K);
        problem.rstd = vec![1.0; tokens as usize];
        problem.route = (0..tokens)
            .flat_map(|_| {
                let mut experts: Vec<u32> = (0..EXPERTS).collect();
                let mut choose = || experts.swap_remove(noise.u32() as usize % experts.len());
                let chosen: Vec<u32> = (0..CHOSEN).map(|_| choose()).collect();
                chosen.into_iter().flat_map(|expert| [expert, 0])
            })
            .collect();
        let flops = 2.0 * problem.pair_count() as f64 * (ROWS * K) as f64;
        let mut runs = Vec::new();
        for load in [1, 2, 4] {
            let regime = Regime::choose(&caps, load);
            let mut of_expert = vec![0; EXPERTS as usize];
            for pair in problem.route.chunks_exact(2) {
                of_expert[pair[0] as usize] += 1;
            }
            let tiles = of_expert.iter().map(|n: &u32| n.div_ceil(regime.tokens()));
            let matrices: u32 = tiles.sum();
            let case = problem.case(regime);
            let executor = &mut *gpu();
            let slices = case.upload(executor);
            let program = Program::new("perf", case.commands(&slices));
            runs.push((regime, matrices, slices, program, Vec::new()));
        }
        let args = StepArgs {
            upload: None,
            counts: vec![tokens],
        };
        let executor = &mut *gpu();
        // In turns, so that neighbours on the machine slow all alike.
        for _ in 0..6 {
            for (_, _, slices, program, times) in &mut runs {
                let start = Instant::now();
                executor.launch(program, &args).expect("launches");
                pollster::block_on(executor.read(slices[4].buffer, 0..4)).expect("reads");
                times.push(start.elapsed().as_secs_f64());
            }
        }
        let mut of_pairs = None;
        for (regime, matrices, slices, _, mut times) in runs {
            times.remove(0);
            times.sort_by(f64::total_cmp);
            let median = times[2];
            println!(
                "{tokens} {} × {} | {matrices} | {:.0} | {:.2} | {:.1} | {:.1} | {:.2}",
                moe_matmul::key(regime, problem.windows[0].1.format, act_format).body,
                regime.tokens(),
                f64::from(matrices) * expert_bytes / 1e6,
                flops / 1e9,
                median * 1e3,
                flops / median / 1e9,
                median / *of_pairs.get_or_insert(median),
            );
            for slice in slices {
                executor.destroy_buffer(slice.buffer);
            }
        }
    }
}
