//! Pairs of tokens and experts by expert, on random routes with an expert that nobody chose and one that
//! everybody did.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_shaders::kernels::moe_group::{self, Pairs};
use twoclock_shaders::kernels::step;
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

/// A step buffer that has a number of tokens and nothing else.
pub(crate) fn step_of(tokens: u32) -> Vec<u32> {
    let mut words = vec![0; step::HEADER];
    words[step::NUM_TOKENS] = tokens;
    words
}

/// Different experts a token, with weights: the last one always, the one before it never.
pub(crate) fn random_route(noise: &mut Noise, tokens: u32, chosen: u32, experts: u32) -> Vec<u32> {
    let mut route = Vec::new();
    for _ in 0..tokens {
        let mut others: Vec<u32> = (0..experts.saturating_sub(2)).collect();
        let mut ours = vec![experts - 1];
        while ours.len() < chosen as usize {
            ours.push(others.swap_remove(noise.u32() as usize % others.len()));
        }
        let place = noise.u32() as usize % ours.len();
        ours.swap(0, place);
        route.extend(ours.iter().flat_map(|&expert| [expert, 0.5f32.to_bits()]));
    }
    route
}

/// What no tile may be.
const UNTOUCHED: u32 = u32::MAX - 1;

#[test]
fn pairs_stand_by_expert() {
    for (tokens, room, chosen, experts) in [
        (1, 4, 1, 2),
        (7, 8, 2, 5),
        (13, 13, 3, 9),
        (150, 256, 8, 70),
    ] {
        let route = random_route(&mut Noise::new(u64::from(tokens)), tokens, chosen, experts);
        let pairs = Pairs {
            tokens: CountId(0),
            room,
            chosen,
            experts,
        };
        // What lies behind the step's tokens is another step's.
        let mut stale = route.clone();
        stale.resize((2 * room * chosen) as usize, 0);
        for regime in [Regime::gemv(2), Regime::gemv(4), Regime::SKINNY] {
            let tile = regime.tokens();
            let what = format!("{tokens} × {chosen} of {experts} by {tile}");
            let run = |kind, on_device: bool| {
                let case = Case {
                    inputs: vec![
                        step_of(tokens).into(),
                        stale.clone().into(),
                        vec![UNTOUCHED; pairs.bytes() as usize / 4].into(),
                    ],
                    dispatches: Box::new(move |b| {
                        let caps = Caps {
                            kind,
                            ..Caps::reference()
                        };
                        let buffers = moe_group::Buffers {
                            step: b[0],
                            route: b[1],
                            pairs: b[2],
                        };
                        vec![moe_group::dispatch(&caps, pairs, regime, buffers)]
                    }),
                    counts: vec![tokens],
                };
                let words = match on_device {
                    true => case.run(&mut *gpu(), 2),
                    false => case.run(&mut CpuExecutor::default(), 2),
                };
                words.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
            };
            let expected = run(DeviceKind::Cpu, false);
            for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
                assert_eq!(run(kind, true), expected, "{what}: {kind:?}");
            }

            // Tiles in order hold every pair once, by expert and then by number.
            let order = 3 * ((room * chosen).div_ceil(tile) + experts) as usize;
            let (tiles, order) = expected.split_at(order);
            let slots = ((tokens * chosen).div_ceil(tile) + experts) as usize;
            let mut seen = Vec::new();
            for (slot, words) in tiles.chunks_exact(3).enumerate() {
                if slot >= slots {
                    assert_eq!(words, [UNTOUCHED; 3], "{what}: tile {slot}");
                    continue;
                }
                let &[expert, first, number] = words else {
                    panic!("three words");
                };
                assert!(number <= tile, "{what}: tile {slot}");
                for &pair in &order[first as usize..][..number as usize] {
                    assert_eq!(route[2 * pair as usize], expert, "{what}: tile {slot}");
                    seen.push((expert, pair));
                }
            }
            assert!(seen.is_sorted(), "{what}");
            assert_eq!(seen.len(), (tokens * chosen) as usize, "{what}");
            assert!(seen.windows(2).all(|two| two[0] != two[1]), "{what}");
        }
    }
}
