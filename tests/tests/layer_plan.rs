//! How many dispatches a layer adds to a decode step, counted on what an engine would launch for models of
//! published shapes.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use serde_json::{Value, json};
use std::cell::RefCell;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ComputeDtype, ModelRunner, NumericsClass, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::{Checkpoint, DType, model_config_of_json};
use twoclock_shaders::caps::{Caps, Coop};
use twoclock_shaders::recording::{Launched, RecordingExecutor};

/// Tokens of a prompt whose keys make one part, and of one whose keys make several.
const PROMPTS: [usize; 2] = [5, 300];

/// Bodies that the last of a request's decode steps launches.
fn decode(
    caps: &Caps,
    compute_dtype: ComputeDtype,
    shape: &Value,
    layers: usize,
    prompt: usize,
) -> Vec<&'static str> {
    let mut shape = shape.clone();
    shape["num_hidden_layers"] = json!(layers);
    let model = model_config_of_json(&shape).expect("a shape");
    let checkpoint = Checkpoint::dummy(model, "dummy", |_| DType::Q4_0).expect("a checkpoint");
    let config = SchedulerConfig {
        max_num_seqs: 4,
        max_model_len: 512,
        max_num_batched_tokens: 64,
        num_blocks: 40,
        ..SchedulerConfig::default()
    };
    let (executor, launches) = RecordingExecutor::new(caps.clone());
    let options = RunnerOptions {
        compute_dtype,
        ..RunnerOptions::default()
    };
    let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let params = SamplingParams {
        max_tokens: 3,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    pollster::block_on(engine.generate(vec![(vec![1; prompt], params)])).expect("a device");
    let bodies = |launches: &RefCell<Vec<Launched>>| -> Vec<_> {
        let launches = launches.borrow();
        let last = launches
            .iter()
            .rposition(|launched| launched.dispatch.key.kernel == "prepare");
        let step = launches[last.expect("a step")..].iter();
        step.map(|launched| launched.dispatch.key.body).collect()
    };
    bodies(&launches)
}

/// Those of one layer more, in the device's default class and in singles, where keys make several parts.
/// Where they make one, attention leaves nothing to merge.
fn per_layer(caps: &Caps, shape: &Value) -> [usize; 2] {
    [ComputeDtype::Auto, ComputeDtype::Of(NumericsClass::F32)].map(|class| {
        let [one_part, several] = PROMPTS.map(|prompt| {
            let [one, two] = [1, 2].map(|layers| decode(caps, class, shape, layers, prompt));
            println!("two layers: {two:?}");
            let merges = two.iter().filter(|body| **body == "attention_merge");
            assert_eq!(merges.count(), if prompt > 256 { 2 } else { 0 });
            two.len() - one.len()
        });
        assert_eq!(one_part, several - 1);
        several
    })
}

/// Their vocabularies are cut: no layer depends on them.
fn shapes() -> [(&'static str, Value); 3] {
    let smollm2 = json!({
        "model_type": "llama", "vocab_size": 512, "hidden_size": 576, "intermediate_size": 1536,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_theta": 100_000.0, "tie_word_embeddings": true,
    });
    let llama = json!({
        "model_type": "llama", "vocab_size": 512, "hidden_size": 4096,
        "intermediate_size": 14_336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
    });
    let qwen25 = json!({
        "model_type": "qwen2", "vocab_size": 512, "hidden_size": 896,
        "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0,
        "tie_word_embeddings": true,
    });
    [
        ("SmolLM2", smollm2),
        ("Llama 3", llama),
        ("Qwen2.5", qwen25),
    ]
}

#[test]
fn a_dense_layer_is_ten_dispatches_on_processors() {
    for (name, shape) in shapes() {
        assert_eq!(per_layer(&Caps::reference(), &shape), [10; 2], "{name}");
    }
}

/// Norms join the matrices before them, and what follows a norm's matrix joins it.
#[test]
fn a_dense_layer_is_six_dispatches_on_processors_of_eight_lanes() {
    let caps = Caps {
        subgroups: Some((8, 8)),
        ..Caps::reference()
    };
    for (name, shape) in shapes() {
        assert_eq!(per_layer(&caps, &shape), [6; 2], "{name}");
    }
    let [(_, smollm2), ..] = shapes();
    let f16 = ComputeDtype::Of(NumericsClass::F16);
    let [one, two] = [1, 2].map(|layers| decode(&caps, f16, &smollm2, layers, 300));
    assert_eq!(two.len() - one.len(), 10, "{two:?}");
}

#[test]
fn a_dense_layer_is_six_dispatches_on_gpus() {
    for (name, shape) in shapes() {
        assert_eq!(per_layer(&Caps::portable_gpu(), &shape), [6; 2], "{name}");
    }
}

/// Norms of heads stand between a matrix and RoPE.
#[test]
fn norms_of_heads_add_their_own() {
    let qwen3 = json!({
        "model_type": "qwen3", "vocab_size": 512, "hidden_size": 1024, "intermediate_size": 3072,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0,
        "tie_word_embeddings": true,
    });
    assert_eq!(per_layer(&Caps::portable_gpu(), &qwen3), [9; 2]);
    assert_eq!(per_layer(&Caps::reference(), &qwen3), [11; 2]);
}

/// Cooperative matrices have a chain of their own, which no fused kernel gives.
#[test]
fn cooperative_matrices_stay_by_themselves() {
    let caps = Caps {
        shader_f16: true,
        coop: Some(Coop { subgroup: 32 }),
        ..Caps::portable_gpu()
    };
    let [(_, smollm2), ..] = shapes();
    let coop = ComputeDtype::Of(NumericsClass::Coop);
    let bodies = decode(&caps, coop, &smollm2, 1, 5);
    let fused = |body: &&str| body.starts_with("fused");
    assert_eq!(bodies.iter().find(|body| fused(body)), None);
    assert!(bodies.iter().any(|body| body.starts_with("matmul_coop")));
    // On the same device without them.
    let bodies = decode(&caps, ComputeDtype::Auto, &smollm2, 1, 5);
    assert_eq!(bodies.iter().filter(|body| fused(body)).count(), 2);
}

/// Where a pair has others with its expert in the mean, pairs are grouped once a layer; where it has not,
/// nothing is.
#[test]
fn pairs_are_grouped_where_experts_share() {
    let shape = json!({
        "model_type": "qwen3_moe", "vocab_size": 2000, "hidden_size": 512, "intermediate_size": 1024,
        "moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4,
        "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "decoder_sparse_step": 1, "max_position_embeddings": 8192,
    });
    let model = model_config_of_json(&shape).expect("a shape");
    let checkpoint = Checkpoint::dummy(model, "dummy", |_| DType::Q4_0).expect("a checkpoint");
    for caps in [Caps::reference(), Caps::portable_gpu()] {
        let (executor, launches) = RecordingExecutor::new(caps);
        let config = SchedulerConfig {
            max_num_seqs: 4,
            max_model_len: 256,
            max_num_batched_tokens: 64,
            num_blocks: 20,
            ..SchedulerConfig::default()
        };
        let options = RunnerOptions::default();
        let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ());
        let runner = runner.expect("loads");
        let clock = ManualClock::default();
        let mut engine =
            EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
        let params = SamplingParams {
            max_tokens: 2,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        pollster::block_on(engine.generate(vec![(vec![1; 30], params)])).expect("a device");
        let launches = launches.borrow();
        let steps = launches.split(|launched| launched.dispatch.key.kernel == "prepare");
        let counts: Vec<[usize; 3]> = steps
            .skip(1)
            .map(|step| {
                let keys = || step.iter().map(|launched| &launched.dispatch.key);
                let tiles = |module| keys().filter(|k| k.slot("tile") == Some(module)).count();
                let groups = keys().filter(|k| k.kernel == "moe_group").count();
                [groups, tiles("tile_expert"), tiles("tile_pair")]
            })
            .collect();
        assert_eq!(counts[..2], [[3, 9, 0], [0, 0, 9]], "{counts:?}");
    }
}
