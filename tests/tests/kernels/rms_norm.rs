//! `rms_norm` against its reference, and its bodies against each other.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor as _;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::rms_norm::{Buffers, RmsNormParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu, rounded};

fn case(
    noise: &mut Noise,
    caps: Caps,
    act_format: ActFormat,
    tokens: usize,
    dim: usize,
) -> Case<'static> {
    let room = tokens.next_multiple_of(8);
    Case {
        inputs: vec![
            noise.f32s(room * dim).into(),
            noise.f32s(dim).into(),
            vec![0f32; room * dim.next_multiple_of(32)].into(),
            vec![0f32; room].into(),
        ],
        dispatches: Box::new(move |b| {
            let params = RmsNormParams {
                dim4: dim as u32 / 4,
                act_stride: act_format.stride(dim as u32),
                eps: 1e-5,
            };
            let buffers = Buffers {
                x: b[0],
                g: b[1],
                out: b[2],
                rstd: b[3],
            };
            vec![dispatch(&caps, act_format, params, CountId(0), buffers)]
        }),
        counts: vec![tokens as u32],
    }
}

#[test]
fn every_body_agrees() {
    let caps = gpu().caps().clone();
    for (tokens, dim) in [(1, 64), (1, 576), (5, 36), (8, 320), (11, 4100)] {
        let mut singles = Vec::new();
        for &act_format in ActFormat::ALL {
            let mut bodies = Vec::new();
            for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
                let caps = Caps {
                    kind,
                    ..caps.clone()
                };
                let case = case(&mut Noise::new(7), caps, act_format, tokens, dim);
                let what = format!("{act_format:?} {kind:?} {tokens} × {dim}");
                let live = |mut v: Vec<f32>, n| {
                    v.truncate(n);
                    v
                };
                let rstd = live(case.run(&mut *gpu(), 3), tokens);
                let expected = live(case.run(&mut CpuExecutor::default(), 3), tokens);
                assert_close(&what, &rstd, &expected, 1e-6);
                let out = case.run(&mut *gpu(), 2);
                if act_format == ActFormat::F32 {
                    let padded = dim.next_multiple_of(32);
                    let expected = case.run(&mut CpuExecutor::default(), 2);
                    assert_eq!(
                        out[..tokens * padded],
                        expected[..tokens * padded],
                        "{what}"
                    );
                    singles = live(out, tokens * padded);
                } else {
                    let mut rows = singles.clone();
                    if act_format.takes_rstd() {
                        let rows = rows.chunks_exact_mut(dim.next_multiple_of(32));
                        for (row, rstd) in rows.zip(&rstd) {
                            row.iter_mut().for_each(|v| *v *= rstd);
                        }
                    }
                    let expected = rounded(act_format, &rows, dim.next_multiple_of(32));
                    let words: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
                    assert_eq!(words[..expected.len()], expected, "{what}");
                }
                bodies.push(rstd);
            }
            assert_eq!(
                bodies[0], bodies[1],
                "{act_format:?} {tokens} × {dim}: bodies"
            );
        }
    }
}
