//! SmolLM2-135M-Instruct from its real file on the device under test: held against llama.cpp's
//! float32 run of the same weights, and against itself however it is served.
//!
//! The model's path comes from `TWOCLOCK_SMOLLM2`; `tests/run.sh` fetches it and sets that.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{LogitsBits, golden, gpu};

fn checkpoint() -> Checkpoint {
    let path = std::env::var_os("TWOCLOCK_SMOLLM2").expect(
        "TWOCLOCK_SMOLLM2 must name SmolLM2-135M-Instruct.Q4_1.gguf; `bash tests/run.sh` fetches \
         it and sets the variable, or: twoclock pull smollm2",
    );
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("TWOCLOCK_SMOLLM2: {e}"));
    Checkpoint::from_gguf(Arc::new(("smollm2".to_owned(), bytes))).expect("a checkpoint")
}

fn reference() -> Value {
    let text = std::fs::read(golden("smollm2.json")).expect("golden data");
    serde_json::from_slice(&text).expect("JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .expect("an array of ids")
        .iter()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect()
}

fn generate(
    executor: impl Executor,
    checkpoint: &Checkpoint,
    config: &SchedulerConfig,
    waves: Vec<Vec<(Vec<u32>, SamplingParams)>>,
) -> Vec<Completion> {
    let options = RunnerOptions::default();
    let started = Instant::now();
    let runner = ModelRunner::load(executor, checkpoint, config, options, |_| ()).expect("loads");
    eprintln!("loaded in {:.2?}", started.elapsed());
    let clock = ManualClock::default();
    let mut engine =
        EngineCore::new(runner, clock, &checkpoint.config, config.clone()).expect("an engine");
    let mut completions = Vec::new();
    for wave in waves {
        let answers = pollster::block_on(engine.generate(wave)).expect("a device");
        completions.extend(answers.into_iter().map(|answer| answer.expect("an answer")));
    }
    eprintln!("{config:?}: {:.2?}", started.elapsed());
    completions
}

#[test]
fn agrees_with_the_float32_reference() {
    let checkpoint = checkpoint();
    let reference = reference();
    let prompts = reference["prompts"].as_array().expect("prompts");
    let mut requests: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            let params = SamplingParams {
                max_tokens: 32,
                ignore_eos: true,
                logprobs: Some(5),
                ..SamplingParams::default()
            };
            (ids(&prompt["ids"]), params)
        })
        .collect();
    // The perplexity text joins the batch; it generates one token that nobody looks at.
    let text = &reference["perplexity"];
    let params = SamplingParams {
        max_tokens: 1,
        prompt_logprobs: true,
        ..SamplingParams::default()
    };
    requests.push((ids(&text["ids"]), params));
    let config = SchedulerConfig {
        num_blocks: 1 + 64,
        ..SchedulerConfig::default()
    };
    let mut completions = generate(&mut *gpu(), &checkpoint, &config, vec![requests]);

    let scored = completions.pop().expect("the text");
    let nll: f64 = scored
        .prompt_logprobs
        .iter()
        .map(|position| -f64::from(position.logprob))
        .sum();
    let perplexity = (nll / scored.prompt_logprobs.len() as f64).exp();
    let expected = text["f32"]["ppl"].as_f64().expect("a perplexity");
    eprintln!("perplexity {perplexity:.5}, reference {expected:.5}");
    assert!(
        (perplexity / expected - 1.0).abs() < 1e-3,
        "perplexity {perplexity}"
    );
    let theirs = text["f32"]["logprobs"]
        .as_array()
        .expect("log-probabilities");
    assert_eq!(scored.prompt_logprobs.len(), theirs.len());
    let mut worst = 0f64;
    for (i, (ours, theirs)) in scored.prompt_logprobs.iter().zip(theirs).enumerate() {
        let difference = (f64::from(ours.logprob) - theirs.as_f64().expect("a number")).abs();
        assert!(difference < 0.02, "text position {i}: {difference}");
        worst = worst.max(difference);
    }

    for (prompt, ours) in prompts.iter().zip(&completions) {
        let name = &prompt["name"];
        let theirs = &prompt["greedy"]["f32"];
        let expected = ids(&theirs["ids"]);
        let steps = theirs["steps"].as_array();
        let mut compared = 0;
        for (step, &id) in expected.iter().enumerate() {
            if let Some(steps) = steps {
                let top: Vec<(u64, f64)> = steps[step]["top"]
                    .as_array()
                    .expect("a top")
                    .iter()
                    .map(|pair| {
                        let id = pair[0].as_u64().expect("an id");
                        (id, pair[1].as_f64().expect("a number"))
                    })
                    .collect();
                for (rank, &(id, expected)) in top.iter().enumerate() {
                    let found = ours.logprobs[step]
                        .top
                        .iter()
                        .find(|(i, _)| u64::from(*i) == id);
                    // Near ties may order the last of five differently.
                    assert!(
                        found.is_some() || rank + 1 == top.len(),
                        "{name} step {step}: id {id} is not among our best five"
                    );
                    if let Some((_, logprob)) = found {
                        let difference = (f64::from(*logprob) - expected).abs();
                        assert!(
                            difference < 0.02,
                            "{name} step {step} id {id}: {difference}"
                        );
                        worst = worst.max(difference);
                    }
                }
                if top[0].1 - top[1].1 <= 0.05 {
                    break;
                }
            }
            assert_eq!(ours.token_ids[step], id, "{name} step {step}");
            compared += 1;
        }
        eprintln!("{name}: {compared} of {} tokens compared", expected.len());
        assert!(compared > 0, "{name}");
    }
    eprintln!("largest difference of a log-probability {worst:.1e}");
}

#[test]
fn the_same_bits_however_served() {
    let checkpoint = checkpoint();
    let reference = reference();
    let text = ids(&reference["perplexity"]["ids"]);
    let mut prompts = vec![text[..530].to_vec()];
    prompts.extend([1, 2, 8, 15, 24, 31, 39].map(|n| text[n..2 * n].to_vec()));
    let request = |prompt: &Vec<u32>| {
        let params = SamplingParams {
            max_tokens: 4,
            ignore_eos: true,
            temperature: 0.8,
            seed: prompt.len() as u64,
            logprobs: Some(checkpoint.config.vocab_size),
            ..SamplingParams::default()
        };
        (prompt.clone(), params)
    };
    let together: Vec<Vec<_>> = vec![prompts.iter().map(request).collect()];
    let alone: Vec<Vec<_>> = prompts.iter().map(|p| vec![request(p)]).collect();
    let mut runs = [
        (&together, 512, 32),
        (&alone, 64, 16),
        (&together, 7, 16),
        (&alone, 512, 32),
    ]
    .into_iter()
    .map(|(waves, chunk, block_size)| {
        let config = SchedulerConfig {
            block_size,
            max_prefill_chunk: Some(chunk),
            num_blocks: 1 + 1024 / block_size,
            ..SchedulerConfig::default()
        };
        let mut gpu = gpu();
        let (executor, logits) = LogitsBits::new(&mut *gpu, checkpoint.config.vocab_size);
        let run = generate(executor, &checkpoint, &config, waves.clone());
        // One row a drawn token, in whatever order they were computed.
        let mut logits = logits.take();
        logits.sort_unstable();
        assert_eq!(logits.len(), 4 * run.len());
        (chunk, block_size, run, logits)
    });
    let (_, _, first, first_logits) = runs.next().expect("four runs");
    for (chunk, block_size, run, logits) in runs {
        assert!(
            logits == first_logits,
            "chunks of {chunk}, pages of {block_size}: other bits of logits"
        );
        for (ours, theirs) in run.iter().zip(&first) {
            let what = format!(
                "prompt of {}, chunks of {chunk}, pages of {block_size}",
                ours.prompt_token_ids.len()
            );
            assert_eq!(ours.token_ids, theirs.token_ids, "{what}");
            assert_eq!(ours.logprobs, theirs.logprobs, "{what}");
        }
    }
}
