//! `residual_norm` against its reference, and its bodies against each other.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::residual_norm::{Buffers, ResidualNormParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

#[test]
fn every_body_adds_the_norm() {
    let caps = gpu().caps().clone();
    for (tokens, dim) in [(1, 64), (5, 36), (9, 320), (3, 4100)] {
        let mut bodies = Vec::new();
        for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
            let caps = Caps {
                kind,
                ..caps.clone()
            };
            let mut noise = Noise::new(9);
            let (y, g) = (noise.f32s(tokens * dim), noise.f32s(dim));
            let x = noise.f32s(tokens * dim);
            let case = Case {
                inputs: vec![y.clone().into(), g.clone().into(), x.clone().into()],
                dispatches: Box::new(move |b| {
                    let params = ResidualNormParams {
                        dim4: dim as u32 / 4,
                        tokens: tokens as u32,
                        eps: 1e-5,
                    };
                    let buffers = Buffers {
                        y: b[0],
                        g: b[1],
                        x: b[2],
                    };
                    vec![dispatch(&caps, params, CountId(0), buffers)]
                }),
                counts: vec![tokens as u32],
            };
            let what = format!("{kind:?} {tokens} × {dim}");
            let expected = case.run(&mut CpuExecutor::default(), 2);
            let device = case.run(&mut *gpu(), 2);
            assert_close(&what, &device, &expected, 1e-6);
            bodies.push(device);
            for (token, out) in expected.chunks_exact(dim).enumerate() {
                let y = &y[token * dim..][..dim];
                let squares: f64 = y.iter().map(|&v| f64::from(v).powi(2)).sum();
                let rstd = 1.0 / (squares / dim as f64 + 1e-5).sqrt();
                let exact: Vec<f32> = (0..dim)
                    .map(|i| {
                        let normed = f64::from(y[i]) * f64::from(g[i]) * rstd;
                        (f64::from(x[token * dim + i]) + normed) as f32
                    })
                    .collect();
                assert_close(&what, out, &exact, 1e-5);
            }
        }
        assert_eq!(bodies[0], bodies[1], "{tokens} × {dim}: bodies");
    }
}
