//! Submits: one a step, whatever is read or changed beside the draw, and more only where a step is
//! long.

use crate::{device, tiny};
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::{PoolingParams, SamplingParams};
use twoclock_shaders::gpu::{SubmitBudget, WgpuExecutor};

type Engine<'a> = EngineCore<ModelRunner<&'a mut WgpuExecutor>, ManualClock>;

const PROMPT: [u32; 5] = [1, 2, 3, 4, 5];

fn engine(executor: &mut WgpuExecutor) -> Engine<'_> {
    let checkpoint = tiny().checkpoint();
    let config = SchedulerConfig {
        max_model_len: 128,
        max_num_batched_tokens: 64,
        num_blocks: 1 + 4 * 48,
        ..SchedulerConfig::default()
    };
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ());
    let (runner, clock) = (runner.expect("loads"), ManualClock::default());
    EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine")
}

/// Generated ids, and the submits the steps took.
fn generate(executor: &mut WgpuExecutor, params: SamplingParams) -> (Vec<u32>, u64) {
    let mut engine = engine(executor);
    let before = engine.runner().executor().submits();
    let answers = pollster::block_on(engine.generate(vec![(PROMPT.to_vec(), params)]));
    let answer = answers.expect("a device").remove(0).expect("an answer");
    let after = engine.runner().executor().submits();
    (answer.token_ids, after - before)
}

fn six_tokens() -> SamplingParams {
    SamplingParams {
        max_tokens: 6,
        ignore_eos: true,
        ..SamplingParams::default()
    }
}

#[test]
fn a_step_is_one_submit_and_a_long_one_is_cut() {
    let mut executor = device();
    let (ids, submits) = generate(&mut executor, six_tokens());
    assert_eq!(ids.len(), 6);
    assert_eq!(submits, 6, "one submit a step");

    // A device so slow, by prediction, that every block between two cuts is a submit of its own.
    let slow = SubmitBudget {
        seconds: 1e-9,
        bytes_per_second: 1.0,
        flops_per_second: 1.0,
    };
    let mut executor = device().with_submit_budget(slow);
    let (cut, submits) = generate(&mut executor, six_tokens());
    assert_eq!(cut, ids, "cuts change nothing");
    let blocks = 3 * 4 + 2;
    assert_eq!(
        submits,
        6 * blocks,
        "four matrices a layer, the head's matrix, the draw"
    );
}

/// A driver may hold a step's second submit back until the first is done: the step before is then said
/// to end when this one does.
#[test]
fn a_step_is_one_submit_whatever_is_asked_of_it() {
    let mut executor = device();
    let (first, _) = generate(&mut executor, six_tokens());
    for (asked, params) in [
        (
            "log-probabilities",
            SamplingParams {
                logprobs: Some(2),
                ..six_tokens()
            },
        ),
        (
            "the prompt's",
            SamplingParams {
                prompt_logprobs: Some(1),
                ..six_tokens()
            },
        ),
        (
            "words left out, and log-probabilities",
            SamplingParams {
                bad_words: vec![vec![first[0]]],
                logit_bias: vec![(3, -1.0)],
                logprobs: Some(0),
                ..six_tokens()
            },
        ),
    ] {
        let (_, submits) = generate(&mut executor, params);
        assert_eq!(submits, 6, "{asked}");
    }
    let many = SamplingParams {
        n: 48,
        ..six_tokens()
    };
    let (_, without) = generate(&mut executor, many.clone());
    let biased = SamplingParams {
        logit_bias: (0..100).map(|id| (id, 0.5)).collect(),
        ..many
    };
    let (_, with) = generate(&mut executor, biased);
    assert_eq!(with, without, "4800 biases a step");
    let mut engine = engine(&mut executor);
    let before = engine.runner().executor().submits();
    let prompts = vec![(PROMPT.to_vec(), PoolingParams::default())];
    let embedded = pollster::block_on(engine.embed(prompts)).expect("a device");
    assert!(embedded[0].is_ok());
    let after = engine.runner().executor().submits();
    assert_eq!(after - before, 1, "an embedding");
}
