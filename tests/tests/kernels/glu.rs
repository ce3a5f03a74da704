//! `glu` against its reference.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::act::ActLayout;
use twoclock_shaders::kernels::glu::{GluParams, dispatch};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, assert_close, gpu};

#[test]
fn gates() {
    for &layout in ActLayout::ALL {
        for (tokens, dim) in [(1, 64), (3, 260), (9, 1536)] {
            let mut noise = Noise::new(4);
            let mut gate_up = noise.f32s(2 * tokens * dim);
            // Gates far out, where exp overflows or vanishes.
            gate_up[0] = -200.0;
            gate_up[1] = 200.0;
            gate_up.iter_mut().skip(2).for_each(|v| *v *= 8.0);
            let room = tokens.next_multiple_of(8);
            let case = Case {
                inputs: vec![gate_up.into(), vec![0f32; room * dim].into()],
                dispatches: Box::new(move |b| {
                    let params = GluParams {
                        dim4: dim as u32 / 4,
                        act_stride: layout.stride(dim as u32, room as u32),
                    };
                    vec![dispatch(layout, params, CountId(0), b[0], b[1])]
                }),
                counts: vec![tokens as u32],
            };
            let expected = case.run(&mut CpuExecutor::default(), 1);
            let what = format!("{layout:?} {tokens} × {dim}");
            assert_close(&what, &case.run(&mut *gpu(), 1), &expected, 1e-5);
        }
    }
}
