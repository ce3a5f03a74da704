//! `softcap` against its reference, and the reference against tanh in f64.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::softcap::{SoftcapParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

#[test]
fn bounds_every_value_and_no_other() {
    let mut noise = Noise::new(1);
    for (rows, dim, cap) in [(1u32, 64u32, 30.0f32), (3, 77, 5.0), (2, 1000, 50.0)] {
        // One row more than is asked for.
        let mut values = noise.f32s(((rows + 1) * dim) as usize);
        for (i, v) in values.iter_mut().enumerate() {
            *v *= cap * [0.01, 0.5, 3.0, 100.0][i % 4];
        }
        let huge = [f32::INFINITY, -1e38, 3e38, f32::NEG_INFINITY, 0.0];
        values[..5].copy_from_slice(&huge);
        let case = Case {
            inputs: vec![values.as_slice().into()],
            dispatches: Box::new(move |b| {
                vec![dispatch(SoftcapParams { dim, cap }, CountId(0), b[0])]
            }),
            counts: vec![rows],
        };
        let expected = case.run(&mut CpuExecutor::default(), 0);
        assert_eq!(expected[..5], [cap, -cap, cap, -cap, 0.0]);
        let (capped, rest) = expected.split_at((rows * dim) as usize);
        assert_eq!(rest, &values[capped.len()..]);
        for (&y, &v) in capped.iter().zip(&values) {
            let exact = f64::from(cap) * (f64::from(v) / f64::from(cap)).tanh();
            let error = (f64::from(y) - exact).abs();
            assert!(
                error <= 4e-7 * exact.abs(),
                "{v} under {cap}: {y}, not {exact}"
            );
        }
        let device = case.run(&mut *gpu(), 0);
        let what = format!("{rows} × {dim} under {cap}");
        assert_close(&what, &device, &expected, 1e-6);
    }
}
