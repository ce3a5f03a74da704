//! Sampling through the whole engine, on both executors: the same tokens for a seeded request alone
//! and in a batch, whatever its filters and penalties; and what bans and biases forbid and force.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::{FinishReason, SamplingParams, StopReason};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{GoldenDir, gpu};

fn checkpoint() -> Checkpoint {
    let dir = GoldenDir {
        dir: "models/qwen3",
        config: "config.json",
    };
    Checkpoint::from_hf(&dir).expect("a checkpoint")
}

fn serve(
    executor: impl Executor,
    checkpoint: &Checkpoint,
    requests: &[Vec<SamplingParams>],
) -> Vec<Completion> {
    let config = SchedulerConfig {
        max_model_len: 64,
        max_num_batched_tokens: 24,
        num_blocks: 33,
        ..SchedulerConfig::default()
    };
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let mut completions = Vec::new();
    for together in requests {
        let prompt = |i: usize| (0..9 + i as u32).map(|t| 30 + 7 * t % 90).collect();
        let together = together.iter().enumerate();
        let asked = together.map(|(i, params)| (prompt(i % 4), params.clone()));
        let answers = pollster::block_on(engine.generate(asked.collect())).expect("a device");
        completions.extend(answers.into_iter().map(|answer| answer.expect("an answer")));
    }
    completions
}

fn base(seed: u64) -> SamplingParams {
    SamplingParams {
        temperature: 0.9,
        seed,
        max_tokens: 10,
        ignore_eos: true,
        ..SamplingParams::default()
    }
}

fn asks() -> Vec<SamplingParams> {
    vec![
        SamplingParams {
            top_k: 20,
            top_p: 0.9,
            min_p: 0.01,
            repetition_penalty: 1.2,
            presence_penalty: 0.4,
            frequency_penalty: 0.3,
            logprobs: Some(2),
            ..base(1)
        },
        base(2),
        SamplingParams {
            top_p: 0.6,
            logit_bias: vec![(40, 3.0), (50, -100.0)],
            ..base(3)
        },
        SamplingParams {
            temperature: 0.0,
            frequency_penalty: 2.0,
            ..base(4)
        },
        SamplingParams {
            top_k: 3,
            ..base(5)
        },
        SamplingParams {
            temperature: 0.0,
            ..base(6)
        },
    ]
}

fn the_same_alone_and_together(mut executor: impl Executor) {
    let checkpoint = checkpoint();
    // Each at its place in the batch, so that prompts are equal; the others end at once.
    let alone: Vec<Vec<SamplingParams>> = (0..asks().len())
        .map(|which| {
            let mut asks = asks();
            for (i, ask) in asks.iter_mut().enumerate() {
                if i != which {
                    *ask = SamplingParams {
                        max_tokens: 1,
                        ..SamplingParams::default()
                    };
                }
            }
            asks
        })
        .collect();
    let together = serve(&mut executor, &checkpoint, &[asks()]);
    let alone = serve(&mut executor, &checkpoint, &alone);
    for (which, completion) in together.iter().enumerate() {
        let same = &alone[which * asks().len() + which];
        assert_eq!(completion.token_ids, same.token_ids, "request {which}");
        assert_eq!(completion.logprobs, same.logprobs, "request {which}");
        assert_eq!(completion.token_ids.len(), 10);
    }
    assert!(!together[2].token_ids.contains(&50));
}

#[test]
fn the_same_tokens_alone_and_in_a_batch() {
    the_same_alone_and_together(CpuExecutor::default());
    the_same_alone_and_together(&mut *gpu());
}

#[test]
fn bans_and_biases_decide() {
    let checkpoint = checkpoint();
    let greedy = SamplingParams {
        temperature: 0.0,
        max_tokens: 6,
        logprobs: Some(1),
        ..base(0)
    };
    let plain = serve(CpuExecutor::default(), &checkpoint, &[vec![greedy.clone()]]).remove(0);
    let [first, second] = [plain.token_ids[0], plain.token_ids[1]];
    let asks = vec![
        vec![SamplingParams {
            bad_words: vec![vec![first]],
            ..greedy.clone()
        }],
        vec![SamplingParams {
            bad_words: vec![vec![first, second], vec![second, first, 3]],
            ..greedy.clone()
        }],
        vec![SamplingParams {
            logit_bias: vec![(77, 100.0)],
            ..greedy.clone()
        }],
        vec![SamplingParams {
            stop_token_ids: vec![first, second],
            ..greedy.clone()
        }],
        vec![SamplingParams {
            stop_token_ids: vec![first, second],
            min_tokens: 3,
            ..greedy
        }],
    ];
    let cpu = serve(CpuExecutor::default(), &checkpoint, &asks);
    let device = serve(&mut *gpu(), &checkpoint, &asks);
    for answers in [cpu, device] {
        assert!(!answers[0].token_ids.contains(&first));
        assert_eq!(answers[1].token_ids[0], first);
        let pairs = |ids: &[u32]| ids.windows(2).any(|pair| pair == [first, second]);
        assert!(!pairs(&answers[1].token_ids));
        assert_eq!(answers[2].token_ids, [77; 6]);
        // The model's own distribution, whatever the bias.
        let (forced, own) = (&answers[2].logprobs[0], &plain.logprobs[0]);
        assert_eq!(forced.top[0].0, first);
        assert!((forced.top[0].1 - own.top[0].1).abs() < 1e-3);
        assert!(forced.logprob < own.logprob);
        assert_eq!(answers[3].finish_reason, Some(FinishReason::Stop));
        assert!(answers[3].token_ids.is_empty());
        assert_eq!(answers[3].stop_reason, Some(StopReason::TokenId(first)));
        assert_eq!(answers[0].stop_reason, None);
        let ids = &answers[4].token_ids;
        assert!(ids.len() >= 3 && !ids.contains(&first) && !ids.contains(&second));
    }
}
