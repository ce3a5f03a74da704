//! Tiny checkpoints against what their reference implementation computed, on both executors: all
//! logits at all positions within tolerance, and every greedy token.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use std::sync::Arc;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::model::linear::Linear;
use twoclock_core::runner::{KvCacheDtype, ModelRunner, RunnerOptions};
use twoclock_core::sample::LogSoftmax;
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::{SamplingParams, TokenLogprobs};
use twoclock_core::weights::{Checkpoint, DType, Quantization, TensorInfo};
use twoclock_shaders::caps::Caps;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_tests::{Expected, GoldenDir, Limited, gguf_parts, golden, golden_bytes, gpu};

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
    run_with(
        RunnerOptions::exact(),
        executor,
        checkpoint,
        expected,
        config,
    )
}

fn run_with(
    options: RunnerOptions,
    executor: impl Executor,
    checkpoint: &Checkpoint,
    expected: &[Expected],
    config: SchedulerConfig,
) -> Vec<Completion> {
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
                prompt_logprobs: Some(checkpoint.config.vocab_size),
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

/// Rounded keys and values: log-probabilities stay near those of the reference. These models are
/// random, so that their scores are large and their heads narrow: the largest difference of any
/// log-probability is far above that of a trained model. Tolerances are a third above what was
/// measured (f16, int8).
#[test]
fn types_of_pages() {
    for (name, f16, int8) in [
        ("llama", 0.03, 0.6),
        ("qwen3", 0.03, 1.1),
        ("gemma2", 0.012, 0.3),
        ("gemma3_text", 0.01, 0.25),
        ("phi3", 0.014, 0.4),
    ] {
        let (checkpoint, expected) = (hf_model(name), Expected::read(name));
        let vocab = checkpoint.config.vocab_size;
        for (dtype, tolerance) in [(KvDtype::F16, f16), (KvDtype::Int8, int8)] {
            let config = || SchedulerConfig {
                max_model_len: 128,
                max_num_batched_tokens: 96,
                num_blocks: 17,
                ..SchedulerConfig::default()
            };
            let options = RunnerOptions {
                kv_cache_dtype: KvCacheDtype::Of(dtype),
                ..RunnerOptions::exact()
            };
            let reference = CpuExecutor::default();
            let cpu = run_with(options.clone(), reference, &checkpoint, &expected, config());
            let device = run_with(options, &mut *gpu(), &checkpoint, &expected, config());
            for (what, completions) in [("the reference", cpu), ("the device", device)] {
                let worst = prompt_difference(&completions, &expected, vocab);
                eprintln!("{name}, {dtype:?} on {what}: {worst:.1e}");
                assert!(worst <= tolerance, "{name}, {dtype:?} on {what}: {worst}");
            }
        }
    }
}

/// Largest difference of a log-probability over the prompts.
fn prompt_difference(completions: &[Completion], expected: &[Expected], vocab: usize) -> f32 {
    let mut worst = 0f32;
    for (completion, case) in completions.iter().zip(expected) {
        let prompt = completion.prompt_logprobs.iter();
        let ours = prompt.chain(completion.logprobs.first());
        for (TokenLogprobs { top, .. }, logits) in ours.zip(case.logits.chunks_exact(vocab)) {
            let theirs = LogSoftmax::new(logits);
            for &(id, logprob) in top {
                worst = worst.max((logprob - theirs.logprob(id)).abs());
            }
        }
    }
    worst
}

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
        // Not by llama.cpp's converter, but as it would.
        "gemma2",
        "gemma3_text",
        "phi3",
        "phi4_mini",
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

/// A device of which less is claimed.
type Limit = fn(&Caps) -> Caps;

/// One table for the embedding and the head, larger than one binding or one grid takes: windows.
#[test]
fn a_tied_table_splits_into_windows() {
    let bindings: Limit = |caps| Caps {
        max_binding_bytes: 128 << 10,
        ..caps.clone()
    };
    let grids: Limit = |caps| Caps {
        max_workgroups: 48,
        ..caps.clone()
    };
    for (name, windows, limit) in [
        ("F32", 3, bindings),
        ("BF16", 2, bindings),
        ("Q8_0", 2, grids),
        ("Q6_K", 2, grids),
    ] {
        let checkpoint = gguf(&format!("gguf/{name}.gguf"));
        assert!(checkpoint.config.tie_word_embeddings);
        let mut reference = CpuExecutor::new(limit(&Caps::reference()));
        let table = checkpoint
            .tensor("model.embed_tokens.weight")
            .expect("a table");
        let table = Linear::load(&mut reference, &[table]).expect("loads");
        assert_eq!(table.parts.len(), windows, "{name}");

        let expected = Expected::read(&format!("gguf_{name}"));
        let vocab = checkpoint.config.vocab_size;
        let config = SchedulerConfig {
            max_num_seqs: 1,
            max_num_batched_tokens: 32,
            max_model_len: 80,
            block_size: 16,
            num_blocks: 6,
            ..SchedulerConfig::default()
        };
        let cpu = run(reference, &checkpoint, &expected, config.clone());
        compare(&format!("{name} in windows"), &cpu, &expected, vocab);
        let mut gpu = gpu();
        let device = Limited::new(&mut *gpu, limit);
        let device = run(device, &checkpoint, &expected, config);
        compare(
            &format!("{name} in windows, device"),
            &device,
            &expected,
            vocab,
        );
    }
}

#[test]
fn a_split_gguf_is_one_model() {
    let bytes = std::fs::read(golden("gguf/Q4_K_M.gguf")).expect("a file");
    let files = gguf_parts("tiny", &bytes, 3);
    let last = "tiny-00003-of-00003.gguf";
    let checkpoint = Checkpoint::from_gguf_parts(&files, last).expect("a checkpoint");
    check("Q4_K_M in parts", "gguf_Q4_K_M", &checkpoint);

    // The divisors of the rotary frequencies are read from whichever part has them.
    let bytes = std::fs::read(golden("gguf_archs/phi4_mini.gguf")).expect("a file");
    let files = gguf_parts("tiny", &bytes, 3);
    let checkpoint = Checkpoint::from_gguf_parts(&files, last).expect("a checkpoint");
    assert_eq!(checkpoint.config, gguf("gguf_archs/phi4_mini.gguf").config);
}

/// Blocks widened to singles and quantized again are the same blocks, so the logits are theirs.
#[test]
fn quantized_on_load() {
    for (name, quantization) in [("Q8_0", Quantization::Q8_0), ("Q4_0", Quantization::Q4_0)] {
        let mut checkpoint = gguf(&format!("gguf/{name}.gguf"));
        for tensor in checkpoint.tensors.values_mut() {
            let values = tensor.read_f32().expect("a tensor");
            let bytes = bytemuck::cast_slice(&values).to_vec();
            *tensor = TensorInfo {
                dtype: DType::F32,
                bytes: bytes.len() as u64,
                offset: 0,
                source: Arc::new((tensor.name.clone(), bytes)),
                ..tensor.clone()
            };
        }
        checkpoint.quantize(quantization).expect("singles");
        check(
            &format!("F32 to {name}"),
            &format!("gguf_{name}"),
            &checkpoint,
        );
    }
}
