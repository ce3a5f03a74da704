//! The kernels of a mixture of experts around its products: routing and the sum.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::moe_route::{self, MoeRouteParams};
use twoclock_shaders::kernels::moe_sum::{self, MoeSumParams};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

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
