//! `kv_copy` against its reference.

use crate::step::step_buffer;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::kv_copy::{Buffers, KvCopyParams, dispatch};
use twoclock_shaders::kernels::step::{COPIES, HEADER};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn copies_the_pages_of_its_group_and_nothing_else() {
    // Pages of 75 · 16 bytes: no multiple of a workgroup. One source is copied twice.
    let (page16, pages) = (75u32, 9u32);
    let groups: [&[[u32; 2]]; 3] = [&[[1, 2]], &[[3, 8], [4, 1], [3, 5]], &[]];
    let mut copies = Vec::new();
    let mut at = HEADER + groups.len();
    for group in groups {
        copies.push(at as u32);
        at += 2 * group.len();
    }
    copies.extend(groups.concat().concat());
    let step = step_buffer(&[(COPIES, &copies)]);
    let words = (4 * page16 * pages) as usize;
    let caches = [7, 8].map(|seed| Noise::new(seed).f32s(words));
    for (group, list) in groups.iter().enumerate() {
        let params = KvCopyParams {
            page16,
            group: group as u32,
        };
        let case = Case {
            inputs: vec![
                step.clone().into(),
                caches[0].clone().into(),
                caches[1].clone().into(),
            ],
            dispatches: Box::new(move |b| {
                let buffers = Buffers {
                    step: b[0],
                    kcache: b[1],
                    vcache: b[2],
                };
                vec![dispatch(params, CountId(0), buffers)]
            }),
            counts: vec![list.len() as u32],
        };
        for (output, cache) in caches.iter().enumerate() {
            let page = |page: u32| &cache[(4 * page16 * page) as usize..][..4 * page16 as usize];
            let copied = |p| {
                list.iter()
                    .find(|copy| copy[1] == p)
                    .map_or(p, |copy| copy[0])
            };
            let expected: Vec<f32> = (0..pages).flat_map(|p| page(copied(p)).to_vec()).collect();
            let output = 1 + output;
            assert_eq!(case.run(&mut CpuExecutor::default(), output), expected);
            assert_eq!(case.run(&mut *gpu(), output), expected, "group {group}");
        }
    }
}
