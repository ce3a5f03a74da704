//! Tiny checkpoints against what their reference implementation computed, on both executors: all
//! logits at all positions within tolerance, and every greedy token.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sample::LogSoftmax;
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::{SamplingParams, TokenLogprobs};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{Expected, GoldenDir, golden_bytes, gpu};

/// Largest difference of a log-probability: float32 noise (README of the golden data).
const TOLERANCE: f32 = 1e-3;

fn hf(dir: &'static str, config: &'static str) -> Checkpoint {
    Checkpoint::from_hf(&GoldenDir { dir, config }).unwrap_or_else(|e| panic!("{dir}: {e}"))
}

fn gguf(path: &str) -> Checkpoint {
    Checkpoint::from_gguf(golden_bytes(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn run(executor: impl Executor, checkpoint: &Checkpoint, expected: &[Expected]) -> Vec<Completion> {
    let config = SchedulerConfig {
        max_model_len: 128,
        max_num_batched_tokens: 96,
        num_blocks: 17,
        ..SchedulerConfig::default()
    };
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let requests = expected
        .iter()
        .map(|case| {
            let params = SamplingParams {
                max_tokens: case.greedy.len(),
                ignore_eos: true,
                logprobs: Some(checkpoint.config.vocab_size),
                prompt_logprobs: true,
                ..SamplingParams::default()
            };
            (case.input_ids.clone(), params)
        })
        .collect();
    pollster::block_on(engine.generate(requests))
        .expect("a device")
        .into_iter()
        .map(|completion| completion.expect("an answer"))
        .collect()
}

fn compare(what: &str, completions: &[Completion], expected: &[Expected], vocab: usize) {
    let mut worst = 0f32;
    for (completion, case) in completions.iter().zip(expected) {
        assert_eq!(completion.token_ids, case.greedy, "{what}: greedy tokens");
        let prompt = completion.prompt_logprobs.iter();
        let ours = prompt.chain(completion.logprobs.first());
        assert_eq!(ours.clone().count(), case.input_ids.len(), "{what}: rows");
        for (TokenLogprobs { top, .. }, logits) in ours.zip(case.logits.chunks_exact(vocab)) {
            let theirs = LogSoftmax::new(logits);
            assert_eq!(top.len(), vocab, "{what}");
            for &(id, logprob) in top {
                let difference = (logprob - theirs.logprob(id)).abs();
                assert!(difference <= TOLERANCE, "{what}: token {id}: {difference}");
                worst = worst.max(difference);
            }
        }
    }
    eprintln!("{what}: largest difference {worst:.1e}");
}

fn check(name: &str, expected: &str, checkpoint: &Checkpoint) {
    let expected = Expected::read(expected);
    let vocab = checkpoint.config.vocab_size;
    let cpu = run(CpuExecutor::default(), checkpoint, &expected);
    compare(&format!("{name} on the reference"), &cpu, &expected, vocab);
    let device = run(&mut *gpu(), checkpoint, &expected);
    compare(&format!("{name} on the device"), &device, &expected, vocab);
}

#[test]
fn llama_bf16_sharded_with_llama3_rope() {
    check("llama", "llama", &hf("models/llama", "config.json"));
    check("llama v5", "llama", &hf("models/llama", "config_v5.json"));
}

#[test]
fn llama_f16_with_biases() {
    check(
        "llama_bias",
        "llama_bias",
        &hf("models/llama_bias", "config.json"),
    );
}

#[test]
fn llama_f32_tied_with_linear_rope() {
    let checkpoint = hf("models/llama_tied_linear", "config.json");
    check("llama_tied_linear", "llama_tied_linear", &checkpoint);
}

#[test]
fn llama_as_gguf() {
    check("gguf llama", "llama", &gguf("gguf_archs/llama.gguf"));
}

fn check_gguf(names: &[&str]) {
    for name in names {
        let checkpoint = gguf(&format!("gguf/{name}.gguf"));
        check(name, &format!("gguf_{name}"), &checkpoint);
    }
}

#[test]
fn gguf_types() {
    check_gguf(&["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]);
}

#[test]
fn gguf_types_of_super_blocks() {
    check_gguf(&["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_K_M"]);
}

#[test]
fn gguf_types_with_tables() {
    check_gguf(&["IQ4_NL", "IQ4_XS", "MXFP4"]);
}
