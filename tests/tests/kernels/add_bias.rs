//! `add_bias` against its reference.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::add_bias::{AddBiasParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn adds_to_its_part_of_each_row() {
    let mut noise = Noise::new(2);
    for (tokens, dim, stride, offset) in [(1, 64, 64, 0), (3, 33, 100, 7), (9, 576, 960, 384)] {
        let params = AddBiasParams {
            dim,
            stride,
            offset,
        };
        let case = Case {
            inputs: vec![
                noise.f32s(dim as usize).into(),
                noise.f32s((tokens * stride) as usize).into(),
            ],
            dispatches: Box::new(move |b| vec![dispatch(params, CountId(0), b[0], b[1])]),
            counts: vec![tokens],
        };
        let expected = case.run(&mut CpuExecutor::default(), 1);
        assert_eq!(case.run(&mut *gpu(), 1), expected, "{params:?}");
    }
}
