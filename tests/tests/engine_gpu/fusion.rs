//! Programs with fused kernels on the device under test, those of GPUs and its own: the kernels beside the
//! reference, and the bits of the logits beside those of programs where every kernel is a dispatch of its own.

use crate::{as_gpu, device, options};
use std::collections::BTreeSet;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, NumericsClass};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::fused_row::offered;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::twin::TwinExecutor;
use twoclock_tests::{Limited, LogitsBits, Synthetic};

/// Two spans and a bit, and heads that a rotary pair spans.
fn wide() -> Synthetic {
    Synthetic {
        hidden_size: 288,
        intermediate_size: 352,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 32,
        vocab_size: 100,
        max_position_embeddings: 128,
        seed: 11,
    }
}

/// Every row of logits of two requests that are served a token at a time, together while both last; sorted.
fn logits(executor: impl Executor, checkpoint: &Checkpoint, class: NumericsClass) -> Vec<Vec<u32>> {
    let config = SchedulerConfig {
        max_num_seqs: 2,
        max_model_len: 64,
        max_num_batched_tokens: 2,
        max_prefill_chunk: Some(1),
        num_blocks: 5,
        ..SchedulerConfig::default()
    };
    let options = options(class, KvDtype::F16);
    let (executor, logits) = LogitsBits::new(executor, checkpoint.config.vocab_size);
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let requests = [(3, 4), (5, 8)].map(|(prompt, max_tokens)| {
        let params = SamplingParams {
            max_tokens,
            ignore_eos: true,
            logprobs: Some(0),
            ..SamplingParams::default()
        };
        ((1..=prompt).collect::<Vec<u32>>(), params)
    });
    let answers = pollster::block_on(engine.generate(requests.to_vec())).expect("a device");
    for answer in answers {
        answer.expect("an answer");
    }
    let mut rows = logits.take();
    assert_eq!(rows.len(), 4 + 8, "a row a token");
    rows.sort_unstable();
    rows
}

#[test]
fn fused_kernels_give_the_bits_of_those_they_stand_for() {
    let both = ["fused_glu", "fused_qkv"];
    for (name, checkpoint, fused) in [
        ("dense", wide().checkpoint(), &both[..]),
        // Heads have norms of their own, and the sublayers others.
        ("gemma", wide().gemma(11), &both[..1]),
    ] {
        let (twin, agreements) = TwinExecutor::new(Limited::new(device(), as_gpu));
        let on_gpu = logits(twin, &checkpoint, NumericsClass::F16);
        let mut tokens = BTreeSet::new();
        for (key, agreement) in &*agreements.borrow() {
            assert_eq!(agreement.fault, None, "{name}: {key}");
            if fused.contains(&key.kernel) {
                tokens.insert((key.kernel, key.value("TOKENS")));
            } else {
                assert!(!key.kernel.starts_with("fused"), "{name}: {key}");
            }
        }
        let all = fused.iter().flat_map(|&kernel| [(kernel, 1), (kernel, 2)]);
        assert_eq!(tokens, all.collect(), "{name}: for a token and for two");
        let apart = logits(device(), &checkpoint, NumericsClass::F16);
        assert!(on_gpu == apart, "{name}");
    }
}

/// On a processor of eight lanes.
#[test]
fn matrices_joined_to_norms_give_the_bits_of_those_apart() {
    let no_lanes = |caps: &Caps| Caps {
        subgroups: None,
        ..caps.clone()
    };
    if !offered(device().caps(), ActFormat::Int8, 1) {
        println!("not offered here: nothing to compare");
        return;
    }
    let checkpoint = wide().checkpoint();
    for class in [NumericsClass::Int8, NumericsClass::F32] {
        let (twin, agreements) = TwinExecutor::new(device());
        let joined = logits(twin, &checkpoint, class);
        let mut names = BTreeSet::new();
        for (key, agreement) in &*agreements.borrow() {
            assert_eq!(agreement.fault, None, "{key}");
            if key.kernel.starts_with("fused") {
                names.insert(key.kernel);
            }
        }
        let all = ["fused_row_glu", "fused_row_join", "fused_row_qkv"];
        assert_eq!(names, all.into(), "{class:?}");
        let apart = logits(Limited::new(device(), no_lanes), &checkpoint, class);
        assert!(joined == apart, "{class:?}");
    }
}
