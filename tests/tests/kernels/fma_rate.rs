//! `fma_rate` against its reference, and against what its chains approach.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::fma_rate::{FmaRateParams, dispatch};
use twoclock_tests::{Case, assert_close, gpu};

#[test]
fn chains_approach_what_they_must() {
    for (groups, rounds) in [(1, 1), (3, 2), (2, 1000)] {
        let case = Case {
            inputs: vec![vec![0f32; groups * 64].into()],
            dispatches: Box::new(move |b| vec![dispatch(FmaRateParams { rounds }, b[0])]),
            counts: Vec::new(),
        };
        let expected = case.run(&mut CpuExecutor::default(), 0);
        assert_close("fma_rate", &case.run(&mut *gpu(), 0), &expected, 1e-5);
        // Σ over chains and components of c · (1 − a^n) / (1 − a).
        let share = (1.0 - 0.9375f64.powi(rounds as i32)) / 0.0625;
        for (i, &y) in expected.iter().enumerate() {
            let c = 32.0 * (i % 64) as f64 * 0.125 + 4.0 * 28.0 + 8.0 * 1.5;
            assert_close("the limit", &[y], &[(c * share) as f32], 1e-5);
        }
    }
}
