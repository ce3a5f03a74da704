//! `residual` against its reference.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::residual::{ResidualParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn adds_bit_for_bit() {
    let mut noise = Noise::new(1);
    for (tokens, dim) in [(1, 64), (3, 260), (9, 576)] {
        let case = Case {
            inputs: vec![
                noise.f32s(tokens * dim).into(),
                noise.f32s(tokens * dim).into(),
            ],
            dispatches: Box::new(move |b| {
                let params = ResidualParams {
                    dim4: dim as u32 / 4,
                };
                vec![dispatch(params, CountId(0), b[0], b[1])]
            }),
            counts: vec![tokens as u32],
        };
        let expected = case.run(&mut CpuExecutor::default(), 1);
        assert_eq!(case.run(&mut *gpu(), 1), expected, "{tokens} × {dim}");
    }
}
