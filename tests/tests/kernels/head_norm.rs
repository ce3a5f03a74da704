//! `head_norm` against its reference and the definition.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::head_norm::{HeadNormParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

#[test]
fn norms_heads_and_leaves_the_rest() {
    let caps = gpu().caps().clone();
    for (heads, kv_heads, head_dim, tokens) in [(4, 2, 32, 3), (9, 3, 64, 2), (2, 1, 20, 1)] {
        let mut noise = Noise::new(8);
        let stride = (heads + 2 * kv_heads) * head_dim;
        let x = noise.f32s((tokens * stride) as usize);
        let gains = noise.f32s(2 * head_dim as usize);
        let params = HeadNormParams {
            heads,
            kv_heads,
            head_dim4: head_dim / 4,
            stride4: stride / 4,
            eps: 1e-6,
        };
        let mut bodies = Vec::new();
        for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
            let caps = Caps {
                kind,
                ..caps.clone()
            };
            let case = Case {
                inputs: vec![gains.clone().into(), x.clone().into()],
                dispatches: Box::new(move |b| {
                    vec![dispatch(&caps, params, CountId(0), b[0], b[1])]
                }),
                counts: vec![tokens],
            };
            let expected = case.run(&mut CpuExecutor::default(), 1);
            let device = case.run(&mut *gpu(), 1);
            let what = format!("{params:?} {kind:?}");
            assert_close(&what, &device, &expected, 1e-6);
            bodies.push(device);
            for (row, (out, x)) in expected
                .chunks_exact(head_dim as usize)
                .zip(x.chunks_exact(head_dim as usize))
                .enumerate()
            {
                let head = row as u32 % (heads + 2 * kv_heads);
                if head >= heads + kv_heads {
                    assert_eq!(out, x, "{what}: values stay");
                    continue;
                }
                let squares: f64 = x.iter().map(|&v| f64::from(v).powi(2)).sum();
                let rstd = 1.0 / (squares / f64::from(head_dim) + 1e-6).sqrt();
                let first = if head < heads { 0 } else { head_dim as usize };
                let exact: Vec<f32> = x
                    .iter()
                    .zip(&gains[first..])
                    .map(|(&v, &g)| (f64::from(v) * rstd * f64::from(g)) as f32)
                    .collect();
                assert_close(&what, out, &exact, 1e-5);
            }
        }
        assert_eq!(bodies[0], bodies[1], "{params:?}: bodies");
    }
}
