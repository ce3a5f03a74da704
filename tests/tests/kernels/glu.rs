//! `glu` against its reference.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::glu::{Activation, GluParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu, rounded};

#[test]
fn gates() {
    for activation in Activation::ALL {
        for (tokens, rows, dim) in [(1, 1, 64), (3, 2, 260), (9, 1, 1536)] {
            let mut noise = Noise::new(4);
            let pairs = tokens * rows as usize;
            let mut gate_up = noise.f32s(2 * pairs * dim);
            // Gates far out, where exp overflows or vanishes.
            gate_up[0] = -200.0;
            gate_up[1] = 200.0;
            gate_up.iter_mut().skip(2).for_each(|v| *v *= 8.0);
            let gates = gate_up.clone();
            let padded = dim.next_multiple_of(32);
            let case = |act_format: ActFormat| Case {
                inputs: vec![gate_up.clone().into(), vec![0f32; pairs * padded].into()],
                dispatches: Box::new(move |b| {
                    let params = GluParams {
                        dim4: dim as u32 / 4,
                        act_stride: act_format.stride(dim as u32),
                    };
                    let rows = (CountId(0), rows);
                    vec![dispatch(activation, act_format, params, rows, b[0], b[1])]
                }),
                counts: vec![tokens as u32],
            };
            let what = format!("{activation:?} {tokens} × {rows} × {dim}");
            let expected = case(ActFormat::F32).run(&mut CpuExecutor::default(), 1);
            let device = case(ActFormat::F32).run(&mut *gpu(), 1);
            assert_close(&what, &device, &expected, 1e-5);
            for act_format in [ActFormat::F16, ActFormat::Int8] {
                let expected = rounded(act_format, &device, padded);
                let out = case(act_format).run(&mut *gpu(), 1);
                let words: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
                assert_eq!(words[..expected.len()], expected, "{what} {act_format:?}");
            }
            // The definition, in double precision.
            let last = pairs - 1;
            for (i, &found) in expected[last * padded..][..dim].iter().enumerate() {
                let gate = f64::from(gates[2 * last * dim + i]);
                let gated = match activation {
                    Activation::Silu => gate / (1.0 + (-gate).exp()),
                    Activation::GeluTanh => {
                        let u =
                            (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
                        0.5 * gate * (1.0 + u.tanh())
                    }
                };
                let exact = gated * f64::from(gates[(2 * last + 1) * dim + i]);
                assert_close(&what, &[found], &[exact as f32], 1e-5);
            }
        }
    }
}
