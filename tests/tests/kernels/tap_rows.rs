//! `tap_rows` against its reference.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::tap_rows::{Buffers, TapRowsParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn records_bit_for_bit_and_no_further() {
    let mut noise = Noise::new(5);
    // The input's rows are padded, the recorded ones are not; one row more than is asked for.
    for (tokens, dim) in [(1usize, 64usize), (3, 260)] {
        let padded = dim.next_multiple_of(32);
        let x = noise.f32s((tokens + 1) * padded);
        let rstd = noise.f32s(tokens + 1);
        for normed in [false, true] {
            let case = Case {
                inputs: vec![
                    x.clone().into(),
                    rstd.clone().into(),
                    vec![7f32; (tokens + 1) * dim].into(),
                ],
                dispatches: Box::new(move |b| {
                    let params = TapRowsParams {
                        dim4: dim as u32 / 4,
                        act_stride: padded as u32 / 4,
                    };
                    let buffers = Buffers {
                        x: b[0],
                        rstd: b[1],
                        out: b[2],
                    };
                    vec![dispatch(normed, params, CountId(0), buffers)]
                }),
                counts: vec![tokens as u32],
            };
            let mut expected: Vec<f32> = (0..tokens)
                .flat_map(|t| {
                    let scale = if normed { rstd[t] } else { 1.0 };
                    x[t * padded..][..dim].iter().map(move |v| v * scale)
                })
                .collect();
            expected.resize((tokens + 1) * dim, 7.0);
            assert_eq!(case.run(&mut CpuExecutor::default(), 2), expected);
            assert_eq!(case.run(&mut *gpu(), 2), expected, "{tokens} × {dim}");
        }
    }
}
