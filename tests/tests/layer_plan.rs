//! How many dispatches a layer adds to a decode step, counted on what an engine would launch for models of
//! published shapes.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use serde_json::{Value, json};
use std::cell::RefCell;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::{Checkpoint, DType, model_config_of_json};
use twoclock_shaders::caps::Caps;
use twoclock_shaders::recording::{Launched, RecordingExecutor};

/// Bodies that the last of a request's decode steps launches.
fn decode(caps: &Caps, shape: &Value, layers: usize) -> Vec<&'static str> {
    let mut shape = shape.clone();
    shape["num_hidden_layers"] = json!(layers);
    let model = model_config_of_json(&shape).expect("a shape");
    let checkpoint = Checkpoint::dummy(model, "dummy", |_| DType::Q4_0).expect("a checkpoint");
    let config = SchedulerConfig {
        max_num_seqs: 4,
        max_model_len: 256,
        max_num_batched_tokens: 64,
        num_blocks: 20,
        ..SchedulerConfig::default()
    };
    let (executor, launches) = RecordingExecutor::new(caps.clone());
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let params = SamplingParams {
        max_tokens: 3,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    pollster::block_on(engine.generate(vec![(vec![1, 2, 3, 4, 5], params)])).expect("a device");
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

/// Those of one layer more.
fn per_layer(caps: &Caps, shape: &Value) -> usize {
    let [one, two] = [1, 2].map(|layers| decode(caps, shape, layers));
    println!("two layers: {two:?}");
    two.len() - one.len()
}

fn shapes() -> [(&'static str, Value); 3] {
    let smollm2 = json!({
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_theta": 100_000.0, "tie_word_embeddings": true,
    });
    let llama = json!({
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096,
        "intermediate_size": 14_336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
    });
    let qwen25 = json!({
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 896,
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
        assert_eq!(per_layer(&Caps::reference(), &shape), 10, "{name}");
    }
}
