//! The kernels of a mixture of experts: routing, the products with chosen experts, their sum.

use twoclock_core::weights::DType;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::moe_matmul::{self, MoeMatmulParams};
use twoclock_shaders::kernels::moe_route::{self, MoeRouteParams};
use twoclock_shaders::kernels::moe_sum::{self, MoeSumParams};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, Weights, assert_close, gpu, rounded, widened};

fn kinds() -> [Caps; 2] {
    let caps = gpu().caps().clone();
    [DeviceKind::Cpu, DeviceKind::Gpu].map(|kind| Caps {
        kind,
        ..caps.clone()
    })
}

/// Experts and weights.
fn pairs(route: &[f32]) -> Vec<(u32, f32)> {
    route
        .chunks_exact(2)
        .map(|pair| (pair[0].to_bits(), pair[1]))
        .collect()
}

#[test]
fn routes_to_the_best() {
    for (experts, chosen, tokens) in [(4, 2, 1), (8, 3, 5), (128, 8, 33), (3, 3, 2)] {
        let mut logits = Noise::new(12).f32s((tokens * experts) as usize);
        logits.iter_mut().for_each(|v| *v *= 3.0);
        // Ties, also for the last place.
        let [first, .., last] = &mut logits[..experts as usize] else {
            panic!("two experts or more");
        };
        *first = 9.0;
        *last = 9.0;
        for norm in [0, 1] {
            for caps in kinds() {
                let params = MoeRouteParams {
                    experts,
                    chosen,
                    tokens,
                    norm,
                };
                let case = Case {
                    inputs: vec![
                        logits.clone().into(),
                        vec![0u32; (2 * tokens * chosen) as usize].into(),
                    ],
                    dispatches: Box::new(move |b| {
                        vec![moe_route::dispatch(&caps, params, CountId(0), b[0], b[1])]
                    }),
                    counts: vec![tokens],
                };
                let expected = pairs(&case.run(&mut CpuExecutor::default(), 1));
                assert_eq!([expected[0].0, expected[1].0], [0, experts - 1]);
                for (token, route) in expected.chunks_exact(chosen as usize).enumerate() {
                    let logits = &logits[token * experts as usize..][..experts as usize];
                    let e = |id: u32| f64::from(logits[id as usize]).exp();
                    let sum: f64 = if norm == 1 {
                        route.iter().map(|&(id, _)| e(id)).sum()
                    } else {
                        (0..experts).map(e).sum()
                    };
                    for &(id, weight) in route {
                        let exact = e(id) / sum;
                        assert!((f64::from(weight) - exact).abs() < 1e-6, "{params:?}");
                    }
                }
                let device = pairs(&case.run(&mut *gpu(), 1));
                let ids = |route: &[(u32, f32)]| -> Vec<u32> {
                    route.iter().map(|&(id, _)| id).collect()
                };
                assert_eq!(ids(&device), ids(&expected), "{params:?}");
                for (ours, theirs) in device.iter().zip(&expected) {
                    assert!((ours.1 - theirs.1).abs() < 1e-6, "{params:?}");
                }
            }
        }
    }
}

const UNTOUCHED: f32 = -777.0;

/// Experts 2..5 of 7 lie in the window; pairs of the others stay as they were.
#[test]
fn multiplies_with_the_chosen_experts() {
    const FIRST: u32 = 2;
    const EXPERTS: u32 = 3;
    // Each way of reading codes and of scaling them; what is left differs in numbers only.
    use DType::{F32, Mxfp4, Q2K, Q4_0, Q5K, Q6K, Q8_0};
    let singles = [F32, Q8_0, Q4_0, Q2K, Q5K, Q6K, Mxfp4].map(|dtype| (ActFormat::F32, dtype));
    let bytes = [F32, Q4_0, Q2K, Q6K].map(|dtype| (ActFormat::Int8, dtype));
    let halves = [(ActFormat::F16, Q4_0)];
    for (act_format, dtype) in singles.into_iter().chain(bytes).chain(halves) {
        for (rows, k, tokens, chosen, shared) in [(5, 96, 3, 2, true), (40, 320, 2, 3, false)] {
            let k = usize::next_multiple_of(k, dtype.block_elements());
            let mut noise = Noise::new(u64::from(rows));
            let weights = Weights::random(&mut noise, dtype, (rows * EXPERTS) as usize, k);
            let format = weights.format;
            let count = (tokens * chosen) as usize;
            let inputs = if shared { tokens as usize } else { count };
            let act = rounded(act_format, &noise.f32s(inputs * k), k);
            let x = widened(act_format, &act);
            let rstd = noise.f32s(inputs);
            let route: Vec<u32> = (0..count as u32)
                .flat_map(|pair| [(pair * 3 + 1) % 7, 0.5f32.to_bits()])
                .collect();
            let stride = rows + 3;
            let params = MoeMatmulParams {
                rows,
                groups: weights.groups as u32,
                first_expert: FIRST,
                experts: EXPERTS,
                share: if shared { chosen } else { 1 },
                act_stride: act_format.stride(k as u32),
                y_stride: stride,
                y_offset: 2,
                norm: 0,
            };
            let mut bodies = Vec::new();
            for caps in kinds() {
                let mut ws = weights.ws.clone();
                ws.resize(ws.len().max(4), 0);
                let what = format!("{act_format:?} {dtype} {:?} {params:?}", caps.kind);
                let case = Case {
                    inputs: vec![
                        act.clone().into(),
                        weights.w.clone().into(),
                        ws.into(),
                        rstd.clone().into(),
                        route.clone().into(),
                        vec![UNTOUCHED; count * stride as usize].into(),
                    ],
                    dispatches: Box::new(move |b| {
                        let buffers = moe_matmul::Buffers {
                            act: b[0],
                            w: b[1],
                            ws: Some(b[2]),
                            rstd: shared.then_some(b[3]),
                            route: b[4],
                            y: b[5],
                        };
                        let pairs = (CountId(0), chosen);
                        vec![moe_matmul::dispatch(
                            &caps, format, act_format, params, pairs, buffers,
                        )]
                    }),
                    counts: vec![tokens],
                };
                let reference = case.run(&mut CpuExecutor::default(), 5);
                let device = case.run(&mut *gpu(), 5);
                for y in [&reference, &device] {
                    let mut computed = 0;
                    for (pair, y) in y.chunks_exact(stride as usize).enumerate() {
                        let expert = route[2 * pair].wrapping_sub(FIRST);
                        let input = if shared { pair / chosen as usize } else { pair };
                        for (i, &v) in y.iter().enumerate() {
                            let row = i.checked_sub(2).filter(|&row| row < rows as usize);
                            let Some(row) = row.filter(|_| expert < EXPERTS) else {
                                assert_eq!(v, UNTOUCHED, "{what}: pair {pair} at {i}");
                                continue;
                            };
                            let row = expert as usize * rows as usize + row;
                            let (sum, size) = weights.values[row * k..][..k]
                                .iter()
                                .zip(&x[input * k..])
                                .map(|(&w, &x)| f64::from(w) * x)
                                .fold((0.0, 0.0), |(s, a), p: f64| (s + p, a + p.abs()));
                            let scale = if shared { f64::from(rstd[input]) } else { 1.0 };
                            assert!(
                                (f64::from(v) - sum * scale).abs() <= 1e-5 * size,
                                "{what}: pair {pair} row {row}"
                            );
                            computed += 1;
                        }
                    }
                    assert!(computed > 0, "{what}");
                }
                bodies.push(device);
            }
            assert_eq!(bodies[0], bodies[1], "{dtype} {params:?}: bodies");
        }
    }
}

#[test]
fn sums_in_the_order_of_the_route() {
    for (tokens, chosen, dim) in [(1, 1, 64), (3, 8, 260)] {
        let mut noise = Noise::new(13);
        let y = noise.f32s(tokens * chosen * dim);
        let weights = noise.f32s(tokens * chosen);
        let route: Vec<u32> = weights.iter().flat_map(|w| [7, w.to_bits()]).collect();
        let case = Case {
            inputs: vec![
                y.clone().into(),
                route.into(),
                vec![0f32; tokens * dim].into(),
            ],
            dispatches: Box::new(move |b| {
                let params = MoeSumParams {
                    dim4: dim as u32 / 4,
                    chosen: chosen as u32,
                };
                let buffers = moe_sum::Buffers {
                    y: b[0],
                    route: b[1],
                    out: b[2],
                };
                vec![moe_sum::dispatch(params, CountId(0), buffers)]
            }),
            counts: vec![tokens as u32],
        };
        let expected = case.run(&mut CpuExecutor::default(), 2);
        let what = format!("{tokens} × {chosen} × {dim}");
        assert_close(&what, &case.run(&mut *gpu(), 2), &expected, 1e-6);
        for (i, &found) in expected.iter().enumerate() {
            let (token, at) = (i / dim, i % dim);
            let exact: f64 = (token * chosen..(token + 1) * chosen)
                .map(|pair| f64::from(weights[pair]) * f64::from(y[pair * dim + at]))
                .sum();
            assert_close(&what, &[found], &[exact as f32], 1e-5);
        }
    }
}
