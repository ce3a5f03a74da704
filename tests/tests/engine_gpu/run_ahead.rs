//! Steps in flight on a device: the same tokens as one step at a time, and as few bytes read back.

use crate::{device, options, tiny};
use std::collections::BTreeMap;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, NumericsClass};
use twoclock_core::sched::{PreemptionMode, SchedulerConfig};
use twoclock_core::types::SamplingParams;
use twoclock_shaders::kernels::kv::KvDtype;

/// Tokens of each answer, and bytes read back a token.
fn serve(
    class: NumericsClass,
    run_ahead: usize,
    requests: &[(u32, SamplingParams)],
) -> (Vec<Vec<u32>>, f64) {
    let checkpoint = tiny().windowed(11, &[true, false, true]);
    let config = SchedulerConfig {
        max_num_seqs: 4,
        max_model_len: 128,
        max_num_batched_tokens: 64,
        max_prefill_chunk: Some(24),
        block_size: 16,
        num_blocks: 1 + 14,
        preemption_mode: PreemptionMode::Recompute,
        run_ahead,
        ..SchedulerConfig::default()
    };
    let mut executor = device();
    let options = options(class, KvDtype::F16);
    let runner = ModelRunner::load(&mut executor, &checkpoint, &config, options, |_| ());
    let runner = runner.expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    for (len, params) in requests {
        let prompt = (0..*len).map(|i| (7 * len + i) % 100).collect();
        engine.add_request(prompt, params.clone()).expect("fits");
    }
    let before = engine.runner().executor().read_bytes();
    let mut answers = BTreeMap::<_, Vec<u32>>::new();
    while engine.has_unfinished_requests() {
        for output in pollster::block_on(engine.step()).expect("a device") {
            let answer = answers.entry((output.request_id, output.index));
            answer.or_default().extend(output.token_ids);
        }
    }
    let bytes = engine.runner().executor().read_bytes() - before;
    let tokens: usize = answers.values().map(Vec::len).sum();
    (
        answers.into_values().collect(),
        bytes as f64 / tokens as f64,
    )
}

fn drawing(max_tokens: usize) -> SamplingParams {
    SamplingParams {
        max_tokens,
        temperature: 1.0,
        ignore_eos: true,
        ..SamplingParams::default()
    }
}

#[test]
fn the_same_tokens_with_steps_in_flight() {
    let penalized = SamplingParams {
        presence_penalty: 0.5,
        ..drawing(20)
    };
    let several = SamplingParams {
        n: 2,
        top_k: 30,
        ..drawing(25)
    };
    let requests = |stop_token_ids: Vec<u32>| {
        let stopping = SamplingParams {
            stop_token_ids,
            seed: 3,
            ..drawing(30)
        };
        [
            (5, stopping),
            (40, penalized.clone()),
            (20, several.clone()),
            (60, drawing(30)),
        ]
    };
    for class in [NumericsClass::Int8, NumericsClass::F16] {
        let (free, _) = serve(class, 0, &requests(vec![]));
        let stop = free[0][12];
        let (ahead, _) = serve(class, 2, &requests(vec![stop]));
        assert!(ahead[0].len() <= 12 && free[0].starts_with(&ahead[0]));
        assert_eq!(ahead[1..], free[1..], "{class:?}");
        if class == NumericsClass::Int8 {
            let (plain, _) = serve(class, 0, &requests(vec![stop]));
            assert_eq!(ahead, plain);
        }
    }
}

#[test]
fn a_token_is_few_bytes() {
    let requests = [(30, drawing(20)), (7, drawing(30)), (1, drawing(30))];
    for run_ahead in [0, 2] {
        let (_, bytes) = serve(NumericsClass::Int8, run_ahead, &requests);
        assert!(bytes <= 64.0, "{bytes} bytes a token");
        assert!(bytes >= 4.0, "{bytes} bytes hold no id");
    }
}
