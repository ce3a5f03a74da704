//! `kv_write` against its reference.

use crate::step::step_buffer;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::kv_write::{Buffers, KvWriteParams, dispatch};
use twoclock_shaders::kernels::step::{NO_SLOT, NUM_TOKENS, SLOTS};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn writes_slots_and_nothing_else() {
    for block_size in [16, 32] {
        let (kv_heads, head_dim, stride) = (3u32, 20u32, 9 * 20u32);
        let params = KvWriteParams {
            kv_heads,
            head_dim4: head_dim / 4,
            stride4: stride / 4,
            k_at4: 3 * head_dim / 4,
            v_at4: 6 * head_dim / 4,
            block_size,
            group: 1,
        };
        // Those of the other group first.
        let slots = [
            0,
            1,
            2,
            3,
            5 * block_size + 3,
            NO_SLOT,
            block_size,
            2 * block_size - 1,
        ];
        let mut step = step_buffer(&[(SLOTS, &slots)]);
        step[NUM_TOKENS] = 4;
        let cache = vec![0f32; (6 * block_size * kv_heads * head_dim) as usize];
        let case = Case {
            inputs: vec![
                Noise::new(5).f32s(4 * stride as usize).into(),
                step.into(),
                cache.clone().into(),
                cache.into(),
            ],
            dispatches: Box::new(move |b| {
                let buffers = Buffers {
                    qkv: b[0],
                    step: b[1],
                    kcache: b[2],
                    vcache: b[3],
                };
                vec![dispatch(params, CountId(0), buffers)]
            }),
            counts: vec![4],
        };
        for output in [2, 3] {
            let expected = case.run(&mut CpuExecutor::default(), output);
            let written = expected.iter().filter(|&&v| v != 0.0).count();
            assert_eq!(written, 3 * (kv_heads * head_dim) as usize);
            assert_eq!(case.run(&mut *gpu(), output), expected, "page {block_size}");
        }
    }
}
