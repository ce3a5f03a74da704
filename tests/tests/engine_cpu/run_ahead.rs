//! Steps in flight: the same answers, however far the engine runs ahead.

use super::{Model, PLAIN, Serving, engine, limits, options, prompt, reference};
use std::collections::BTreeMap;
use twoclock_core::runner::NumericsClass;
use twoclock_core::sched::{PreemptionMode, RequestError, SchedulerConfig};
use twoclock_core::types::{FinishReason, RequestId, SamplingParams};
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::kernels::kv::KvDtype;

/// Ids, log-probabilities to the bit, and how it ended.
type Answer = (
    Vec<u32>,
    Vec<u32>,
    Option<Result<FinishReason, RequestError>>,
);

/// Everything that ends an answer or makes a draw depend on those before it, beside plain answers; one is
/// aborted on the way. Also says how often a request gave way.
fn run(
    (class, kind): (NumericsClass, DeviceKind),
    run_ahead: usize,
    num_blocks: usize,
    stop: Option<u32>,
) -> (BTreeMap<(RequestId, usize), Answer>, u64) {
    let config = SchedulerConfig {
        num_blocks,
        preemption_mode: PreemptionMode::Swap,
        enable_prefix_caching: num_blocks < 40,
        ..limits(Serving {
            block_size: 16,
            chunk: 24,
            run_ahead,
            ..PLAIN
        })
    };
    let options = options(class, KvDtype::F16);
    let mut engine = engine(reference(class, kind), Model::Mixed, config, options);
    let plain = SamplingParams {
        max_tokens: 18,
        temperature: 1.0,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let penalized = SamplingParams {
        frequency_penalty: 0.7,
        repetition_penalty: 1.3,
        bad_words: vec![vec![3, 4]],
        ..plain.clone()
    };
    let ended = SamplingParams {
        stop_token_ids: stop.into_iter().collect(),
        min_tokens: 2,
        logprobs: Some(2),
        ..plain.clone()
    };
    let several = SamplingParams {
        n: 2,
        ..ended.clone()
    };
    let requests = [
        (40, &plain),
        (33, &penalized),
        (17, &ended),
        (50, &several),
        (60, &plain),
    ];
    let ids = requests.map(|(len, params)| {
        let seeded = SamplingParams {
            seed: len as u64,
            ..params.clone()
        };
        engine.add_request(prompt(len), seeded).expect("fits")
    });
    let mut answers = BTreeMap::new();
    while engine.has_unfinished_requests() {
        let outputs = pollster::block_on(engine.step()).expect("a device");
        for output in outputs {
            let answer: &mut Answer = answers
                .entry((output.request_id, output.index))
                .or_default();
            let logprobs = output.logprobs.iter().flat_map(|l| &l.top);
            answer
                .1
                .extend(logprobs.flat_map(|(id, l)| [*id, l.to_bits()]));
            answer.0.extend(output.token_ids);
            answer.2 = output.finished;
            if output.request_id == ids[4] && answer.0.len() == 5 {
                engine.abort(ids[4]);
            }
        }
        engine.scheduler().check_integrity().expect("sound");
    }
    let metrics = engine.scheduler().cache_metrics();
    (answers, metrics.num_preemptions_swap)
}

#[test]
fn steps_in_flight_change_nothing() {
    let all = [(1, 60), (3, 60), (2, 8), (1, 8)];
    for (on, ways) in [
        ((NumericsClass::Int8, DeviceKind::Cpu), &all[..]),
        ((NumericsClass::F32, DeviceKind::Gpu), &all[2..3]),
        ((NumericsClass::F16, DeviceKind::Gpu), &all[1..3]),
        ((NumericsClass::Coop, DeviceKind::Gpu), &all[2..3]),
    ] {
        let (free, _) = run(on, 0, 60, None);
        // An id that the third answer draws in the middle ends it, and perhaps others.
        let stop = free.values().nth(2).map(|answer| answer.0[6]);
        let (alone, _) = run(on, 0, 60, stop);
        let third = &alone.values().nth(2).expect("an answer").0;
        assert!((2..=6).contains(&third.len()) && alone != free);
        let mut swapped = 0;
        for &(run_ahead, num_blocks) in ways {
            let (answers, swaps) = run(on, run_ahead, num_blocks, stop);
            swapped += swaps;
            assert!(
                answers == alone,
                "{on:?}, {run_ahead} ahead, {num_blocks} blocks"
            );
        }
        assert!(swapped > 0);
    }
}
