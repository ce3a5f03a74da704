//! Tests of the cost model and of the budget that comes of it.

use super::super::hardware::PerRegime;
use super::super::model_shape::tests::llama_8b;
use super::super::token_budget::{BudgetPolicy, PrefillDemand, RidgeBudget, ServiceLevel};
use super::*;

/// Something like an H100.
fn gpu() -> Hardware {
    Hardware {
        bandwidth: 2.7e12,
        flops: PerRegime {
            gemv: 3e13,
            skinny: 3e14,
            gemm: 6e14,
        },
        step_overhead: 2e-4,
        dispatch_overhead: 2e-6,
        memory: 80 << 30,
        host_bandwidth: 5e10,
    }
}

/// Something like a processor: one token takes what it takes, and two twice as much.
fn cpu() -> Hardware {
    Hardware {
        bandwidth: 4e10,
        flops: PerRegime {
            gemv: 2e10,
            skinny: 4e10,
            gemm: 5e10,
        },
        ..gpu()
    }
}

fn model(hardware: Hardware) -> CostModel {
    let shape = ModelShape::new(&llama_8b(), 16_060_000_000, 2.0);
    CostModel::new(shape, hardware)
}

fn decodes(n: usize, context: usize) -> Vec<SequenceLoad> {
    let one = SequenceLoad {
        num_tokens: 1,
        num_computed_tokens: context,
        samples: true,
    };
    vec![one; n]
}

fn prompt(num_tokens: usize) -> SequenceLoad {
    SequenceLoad {
        num_tokens,
        num_computed_tokens: 0,
        samples: true,
    }
}

#[test]
fn a_decode_is_its_weights_and_a_prompt_its_arithmetic() {
    let m = model(gpu());
    let one = m.cost_of(decodes(1, 100));
    // 7.5 billion parameters without the embedding table, 2 bytes each, at 2.7 TB/s.
    assert_eq!(one.bound, Bound::Memory);
    assert!((one.seconds - 0.0062).abs() < 0.0002, "{}", one.seconds);
    assert!((one.intensity() - 1.0).abs() < 0.02);
    let long = m.cost_of([prompt(4096)]);
    assert_eq!(long.bound, Bound::Compute);
    let share = long.achieved_flops() / 6e14;
    assert!((0.9..1.0).contains(&share), "{share}");
    // What a whole batch reads of the cache counts.
    let (short, long) = (m.cost_of(decodes(64, 100)), m.cost_of(decodes(64, 8000)));
    assert!(long.seconds > short.seconds * 2.5);
    assert_eq!(long.bound, Bound::Memory);
}

#[test]
fn more_is_never_sooner_inside_a_regime() {
    let m = model(gpu());
    for tokens in [1..=8, 9..=64, 65..=3000] {
        let seconds = tokens.map(|n| m.cost_of([prompt(n)]).seconds);
        assert!(seconds.is_sorted());
    }
}

#[test]
fn under_the_ridge_tokens_are_free_and_on_a_processor_none_is() {
    let m = model(gpu());
    // rate · bytes a parameter / (2 · bandwidth)
    assert!(
        (220..240).contains(&m.ridge_tokens()),
        "{}",
        m.ridge_tokens()
    );
    let load = |n| StepLoad::of(m.shape(), decodes(n, 100));
    let free = m.free_tokens(&load(16), 0, 4096);
    assert!((150..250).contains(&free), "{free}");
    let full = m.free_tokens(&load(512), 0, 4096);
    assert!(full < 40, "{full}");
    let m = model(cpu());
    let load = StepLoad::of(m.shape(), decodes(16, 100));
    assert_eq!(m.free_tokens(&load, 0, 4096), 0);
}

#[test]
fn measured_steps_correct_what_was_assumed_wrongly() {
    // The truth, and assumptions that are off by up to 8 ×, either way.
    for (truth, wrong) in [(gpu(), 8.0), (gpu(), 0.3), (cpu(), 5.0), (cpu(), 0.2)] {
        let truth = model(truth);
        let mut assumed = *truth.hardware();
        assumed.bandwidth *= wrong;
        assumed.flops.gemv /= wrong;
        assumed.flops.skinny *= wrong;
        assumed.flops.gemm /= wrong;
        let mut m = model(assumed);
        let loads = [1, 2, 4, 8, 32, 64, 256, 1024].map(|n| match n {
            ..=64 => StepLoad::of(m.shape(), decodes(n, 200)),
            _ => StepLoad::of(m.shape(), [prompt(n)]),
        });
        for round in 0..60 {
            for (i, load) in loads.iter().enumerate() {
                // Noise of 3 %, and now and then a step that something else delayed.
                let noise = 1.0 + 0.03 * f64::from((round * 7 + i as i32 * 5) % 13 - 6) / 6.0;
                let delay = if round > 5 && (round * 8 + i as i32) % 37 == 0 {
                    15.0
                } else {
                    1.0
                };
                m.observe(load, truth.cost(load).seconds * noise * delay);
            }
        }
        for load in &loads {
            let ratio = m.cost(load).seconds / truth.cost(load).seconds;
            assert!(
                (0.85..1.2).contains(&ratio),
                "{} tokens: {ratio}",
                load.num_tokens
            );
        }
    }
}

#[test]
fn a_measurement_that_cannot_be_changes_nothing() {
    let mut m = model(gpu());
    let load = StepLoad::of(m.shape(), [prompt(500)]);
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
        m.observe(&load, seconds);
    }
    m.observe(&StepLoad::default(), 1.0);
    assert_eq!(m.hardware(), &gpu());
}

#[test]
fn preempted_pages_move_where_the_link_is_fast() {
    let m = model(gpu());
    let bytes = |tokens: u64| tokens * 131_072;
    // 1000 tokens: 27 ms of arithmetic against 5 ms of copies.
    assert!(m.swap(bytes(1000)) < m.recompute(1000));
    let slow = model(Hardware {
        host_bandwidth: 1e9,
        ..gpu()
    });
    assert!(slow.swap(bytes(1000)) > slow.recompute(1000));
}

fn ridge(hardware: Hardware, slo: ServiceLevel) -> RidgeBudget {
    RidgeBudget::new(model(hardware), slo, 2048)
}

const DEMAND: PrefillDemand = PrefillDemand {
    num_tokens: 3000,
    num_computed_tokens: 0,
};

#[test]
fn the_budget_is_what_the_slo_leaves() {
    let tpot = |tpot| ServiceLevel {
        tpot: Some(tpot),
        ttft: None,
    };
    let mut last = 0;
    for seconds in [0.008, 0.012, 0.02, 0.05] {
        let policy = ridge(gpu(), tpot(seconds));
        let budget = policy.prefill_budget(&decodes(32, 500), DEMAND);
        let mut step = decodes(32, 500);
        step.push(prompt(budget));
        assert!(policy.model.cost_of(step.iter().copied()).seconds <= seconds);
        step.push(prompt(64));
        assert!(budget == 2048 || policy.model.cost_of(step).seconds > seconds * 0.95);
        assert!(budget >= last);
        last = budget;
    }
    // What cannot be kept anyway starves no prompt.
    let policy = ridge(gpu(), tpot(0.001));
    let starved = policy.prefill_budget(&decodes(32, 500), DEMAND);
    assert_eq!(starved, policy.min_tokens);
    assert_eq!(policy.prefill_budget(&[], DEMAND), 2048);
}

#[test]
fn without_an_slo_a_step_stays_under_three_times_its_usual() {
    for hardware in [gpu(), cpu()] {
        let policy = ridge(hardware, ServiceLevel::default());
        for n in [1, 8, 64] {
            let mut step = decodes(n, 300);
            let usual = policy.model.cost_of(step.iter().copied()).seconds;
            let budget = policy.prefill_budget(&step, DEMAND);
            step.push(prompt(budget));
            let with = policy.model.cost_of(step).seconds;
            assert!(budget == 1 || with < usual * 3.0, "{n}: {with} {usual}");
        }
    }
}

#[test]
fn a_ttft_to_keep_raises_the_budget() {
    let budget = |ttft| {
        let slo = ServiceLevel { tpot: None, ttft };
        let demand = PrefillDemand {
            num_tokens: 20_000,
            num_computed_tokens: 0,
        };
        let mut policy = ridge(gpu(), slo);
        policy.stretch = 1.2;
        policy.prefill_budget(&decodes(4, 300), demand)
    };
    let unhurried = budget(None);
    assert!((150..350).contains(&unhurried), "{unhurried}");
    assert_eq!(budget(Some(10.0)), unhurried);
    assert!(budget(Some(0.5)) > unhurried);
    assert_eq!(budget(Some(0.01)), 2048);
}

#[test]
fn a_tile_costs_as_much_as_the_first_token_in_it() {
    let flops = PerRegime {
        gemv: 2e10,
        skinny: 2e10,
        gemm: 2e10,
    };
    let tiled = model(Hardware { flops, ..cpu() }).with_token_tile(4);
    let seconds = |n| tiled.cost_of(decodes(n, 100)).seconds;
    assert!(seconds(1) * 1.1 > seconds(4) && seconds(5) > seconds(4) * 1.8);
    // Beside four decodes a prompt takes the tile that its first token begins, however dear that is.
    let load = StepLoad::of(tiled.shape(), decodes(4, 100));
    assert_eq!(tiled.tokens_with_one(&load, 0, 512), 4);
    assert_eq!(tiled.tokens_with_one(&load, 0, 3), 3);
    let mut hurried = RidgeBudget::new(tiled.clone(), ServiceLevel::default(), 512);
    hurried.stretch = 1.0;
    assert_eq!(hurried.prefill_budget(&decodes(4, 100), DEMAND), 4);
    // What was predicted is learnt as it was predicted: nothing moves.
    let mut taught = tiled.clone();
    for n in [3, 4, 5, 9, 66] {
        let load = StepLoad::of(taught.shape(), decodes(n, 0));
        let predicted = taught.cost(&load).seconds;
        taught.observe(&load, predicted);
        assert!(
            (taught.cost(&load).seconds / predicted - 1.0).abs() < 1e-6,
            "{n}"
        );
    }
}

#[test]
fn slow_steps_and_a_fast_usual_lower_the_budget() {
    let budget = |usual_ratio, late_ratio| {
        let ridge = RidgeBudget {
            usual_ratio,
            late_ratio,
            ..ridge(cpu(), ServiceLevel::default())
        };
        ridge.prefill_budget(&decodes(16, 200), DEMAND)
    };
    let predicted = budget(1.0, 1.0);
    assert!(budget(0.7, 1.0) < predicted && budget(1.0, 1.3) < predicted && predicted > 4);
}
