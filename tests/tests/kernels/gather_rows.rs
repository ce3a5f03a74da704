//! `gather_rows` against its reference.

use crate::step::step_buffer;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::gather_rows::{GatherRowsParams, dispatch};
use twoclock_shaders::kernels::step;
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn takes_the_named_rows() {
    let dim = 260;
    let case = Case {
        inputs: vec![
            Noise::new(3).f32s(8 * dim).into(),
            step_buffer(&[(step::ROWS, &[7, 0, 5, 5, 2])]).into(),
            vec![0f32; 3 * dim].into(),
        ],
        dispatches: Box::new(move |b| {
            let params = GatherRowsParams {
                dim4: dim as u32 / 4,
                first_row: 2,
            };
            vec![dispatch(params, CountId(0), b[0], b[1], b[2])]
        }),
        counts: vec![3],
    };
    let expected = case.run(&mut CpuExecutor::default(), 2);
    assert!(expected.iter().any(|&v| v != 0.0));
    assert_eq!(
        expected[..dim],
        expected[dim..2 * dim],
        "rows 2 and 3 are both token 5"
    );
    assert_eq!(case.run(&mut *gpu(), 2), expected);
}
