//! `rope` against its reference.

use crate::step::step_buffer;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::rope::{Buffers, Pairing, RopeParams, dispatch};
use twoclock_shaders::kernels::step;
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

#[test]
fn turns_heads_and_leaves_the_rest() {
    for pairing in [Pairing::Halves, Pairing::Interleaved] {
        for (head_dim, pairs) in [(64, 32), (16, 8), (32, 12)] {
            let (heads, stride, positions) = (5u32, 7 * head_dim, [0, 1, 99, 3]);
            let table: Vec<f32> = (0..100 * pairs)
                .flat_map(|i| [(i as f32 * 0.37).cos(), (i as f32 * 0.37).sin()])
                .collect();
            let x = Noise::new(6).f32s(4 * stride as usize);
            let params = RopeParams {
                heads,
                head_dim,
                pairs,
                stride,
            };
            let case = Case {
                inputs: vec![
                    table.into(),
                    step_buffer(&[(step::POSITIONS, &positions)]).into(),
                    x.clone().into(),
                ],
                dispatches: Box::new(move |b| {
                    let buffers = Buffers {
                        table: b[0],
                        step: b[1],
                        x: b[2],
                    };
                    vec![dispatch(pairing, params, CountId(0), buffers)]
                }),
                counts: vec![4],
            };
            let expected = case.run(&mut CpuExecutor::default(), 2);
            let kept = (heads * head_dim) as usize;
            assert_eq!(expected[kept..stride as usize], x[kept..stride as usize]);
            assert_ne!(expected[..kept], x[..kept]);
            let what = format!("{pairing:?} {params:?}");
            assert_close(&what, &case.run(&mut *gpu(), 2), &expected, 1e-6);
        }
    }
}
