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

fn run(
    executor: impl Executor,
    checkpoint: &Checkpoint,
    expected: &[Expected],
    config: SchedulerConfig,
) -> Vec<Completion> {
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
    check_at(128, name, &Expected::read(expected), checkpoint);
}

/// With sequences of at most `max_model_len` tokens.
fn check_at(max_model_len: usize, name: &str, expected: &[Expected], checkpoint: &Checkpoint) {
    let config = SchedulerConfig {
        max_model_len,
        max_num_batched_tokens: 96,
        num_blocks: 17,
        ..SchedulerConfig::default()
    };
    check_under(config, name, expected, checkpoint);
}

fn check_under(
    config: SchedulerConfig,
    name: &str,
    expected: &[Expected],
    checkpoint: &Checkpoint,
) {
    let vocab = checkpoint.config.vocab_size;
    let cpu = run(CpuExecutor::default(), checkpoint, expected, config.clone());
    compare(&format!("{name} on the reference"), &cpu, expected, vocab);
    let device = run(&mut *gpu(), checkpoint, expected, config);
    compare(&format!("{name} on the device"), &device, expected, vocab);
}

/// A checkpoint of `models`, whose configuration says the same in both forms.
fn hf_model(name: &'static str) -> Checkpoint {
    let dir: &'static str = format!("models/{name}").leak();
    let hub = hf(dir, "config.json");
    assert_eq!(hub.config, hf(dir, "config_v5.json").config, "{name}");
    hub
}

macro_rules! checkpoints {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), stringify!($name), &hf_model(stringify!($name)));
        })*
    };
}

checkpoints![
    llama,
    llama_bias,
    llama_tied_linear,
    mistral,
    mistral_full,
    mixtral,
    qwen2,
    qwen2_swa,
    qwen2_yarn,
    qwen3,
    qwen3_moe,
    gemma,
    gemma2,
    gemma3_text,
    phi3,
    phi3_longrope_short,
    phi4_mini,
    smollm3,
];

/// Windows of 8 tokens, in prompts computed piece by piece and pages of either size.
#[test]
fn windows_in_chunks_and_pages() {
    for name in ["mistral", "qwen2_swa", "gemma2", "gemma3_text", "phi3"] {
        let (checkpoint, expected) = (hf_model(name), Expected::read(name));
        assert_eq!(checkpoint.config.sliding_window, Some(8), "{name}");
        for (chunk, block_size) in [(1, 16), (7, 32), (7, 16), (64, 32)] {
            let config = SchedulerConfig {
                max_model_len: 128,
                max_num_batched_tokens: 96,
                max_prefill_chunk: Some(chunk),
                block_size,
                // Enough for the three requests one after the other, not for all at once.
                num_blocks: 1 + 128 / block_size,
                ..SchedulerConfig::default()
            };
            let what = format!("{name} in chunks of {chunk}, pages of {block_size}");
            check_under(config, &what, &expected, &checkpoint);
        }
    }
}

/// The short divisors serve sequences within the original context of 8 tokens, the long ones
/// those beyond. The reference chooses by each length; an engine has to choose once.
#[test]
fn phi3_longrope_long() {
    let name = "phi3_longrope_long";
    let checkpoint = hf_model(name);
    let mut expected = Expected::read(name);
    check_at(128, name, &expected[1..], &checkpoint);
    expected.truncate(1);
    expected[0].greedy.truncate(7);
    check_at(8, name, &expected, &checkpoint);
}

#[test]
fn gguf_architectures() {
    for name in [
        "llama",
        "mistral_full",
        "mixtral",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "smollm3",
    ] {
        let checkpoint = gguf(&format!("gguf_archs/{name}.gguf"));
        check(&format!("gguf {name}"), name, &checkpoint);
    }
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
