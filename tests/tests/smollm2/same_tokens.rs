//! The promise of a numerics class, on a real model: a request's tokens are those it has alone,
//! whatever it is served with. Each way of serving puts several things together: load with random
//! arrivals, chunks, pages found and pages lost, steps launched ahead, a lost device.
//!
//! `cargo test -p twoclock-tests --test smollm2 -- --ignored forty` does so with forty prompts.

use crate::checkpoint;
use std::collections::BTreeMap;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::error::Error;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::{PreemptionMode, SchedulerConfig};
use twoclock_core::types::{RequestId, SamplingParams, TokenId};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::ExecutorError;
use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};
use twoclock_tests::{Noise, Reference};

/// Tokens of each answer.
const MAX_TOKENS: usize = 24;
/// Tokens that every other prompt begins with.
const SHARED: usize = 48;

type Asked = (Vec<TokenId>, SamplingParams);

fn device() -> WgpuExecutor {
    let device = pollster::block_on(GpuDevice::open(DeviceOptions::default()));
    WgpuExecutor::new(device.expect("a Vulkan device; tests/run.sh installs a software one"))
}

/// Requests of many kinds: short and long, of a common beginning or not, certain and drawn, with
/// penalties and without, and some that end early.
fn requests(n: usize) -> Vec<Asked> {
    let text = Reference::read("smollm2.json").text();
    let request = |i: usize| {
        let own = 4 + (i * 37) % 90;
        let start = (i * 61) % (text.len() - own);
        let mut ids = text[start..start + own].to_vec();
        if i.is_multiple_of(2) {
            ids.splice(..0, text[..SHARED].iter().copied());
        }
        let params = SamplingParams {
            max_tokens: MAX_TOKENS,
            ignore_eos: i % 8 != 7,
            temperature: [0.0, 0.8][i / 2 % 2],
            top_p: [1.0, 0.9][i / 4 % 2],
            top_k: [0, 50][i % 2],
            repetition_penalty: [1.0, 1.2][usize::from(i % 5 == 4)],
            min_tokens: [0, 9][usize::from(i % 8 == 7)],
            seed: i as u64,
            ..SamplingParams::default()
        };
        (ids, params)
    };
    (0..n).map(request).collect()
}

/// A way of serving.
struct Way {
    name: &'static str,
    config: SchedulerConfig,
    /// Requests that nobody asks about, among the others.
    load: usize,
    /// The device is lost once so many steps have brought something.
    lost_after: Option<usize>,
}

fn config() -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 16,
        max_model_len: 256,
        num_blocks: 1 + 16 * 256 / 32,
        ..SchedulerConfig::default()
    }
}

fn ways() -> Vec<Way> {
    vec![
        Way {
            name: "16-way load, chunks of 64, pages found, a step ahead",
            config: SchedulerConfig {
                max_prefill_chunk: Some(64),
                run_ahead: 1,
                ..config()
            },
            load: 8,
            lost_after: None,
        },
        Way {
            name: "too few pages, computed again, chunks of 7, two steps ahead",
            config: SchedulerConfig {
                max_prefill_chunk: Some(7),
                num_blocks: 1 + 12,
                preemption_mode: PreemptionMode::Recompute,
                run_ahead: 2,
                ..config()
            },
            load: 0,
            lost_after: None,
        },
        Way {
            name: "too few pages, swapped, of 16 tokens, three steps ahead",
            config: SchedulerConfig {
                block_size: 16,
                num_blocks: 1 + 24,
                preemption_mode: PreemptionMode::Swap,
                run_ahead: 3,
                ..config()
            },
            load: 0,
            lost_after: None,
        },
        Way {
            name: "a lost device, chunks of 32, a step ahead",
            config: SchedulerConfig {
                max_prefill_chunk: Some(32),
                run_ahead: 1,
                ..config()
            },
            load: 0,
            lost_after: Some(12),
        },
    ]
}

type Engine = EngineCore<ModelRunner<WgpuExecutor>, ManualClock>;

fn runner(checkpoint: &Checkpoint, config: &SchedulerConfig) -> ModelRunner<WgpuExecutor> {
    let options = RunnerOptions::default();
    ModelRunner::load(device(), checkpoint, config, options, |_| ()).expect("loads")
}

fn engine(checkpoint: &Checkpoint, config: &SchedulerConfig) -> Engine {
    let runner = runner(checkpoint, config);
    let clock = ManualClock::default();
    EngineCore::new(runner, clock, &checkpoint.config, config.clone()).expect("an engine")
}

/// Ids of each answer, with nothing else about.
fn alone(checkpoint: &Checkpoint, requests: &[Asked]) -> Vec<Vec<TokenId>> {
    let config = SchedulerConfig {
        enable_prefix_caching: false,
        run_ahead: 0,
        ..config()
    };
    let mut engine = engine(checkpoint, &config);
    let answer = |request: &Asked| {
        let answers = pollster::block_on(engine.generate(vec![request.clone()]));
        let answer: Completion = answers.expect("a device").remove(0).expect("an answer");
        answer.token_ids
    };
    requests.iter().map(answer).collect()
}

/// Ids of each answer, served so; the engine, to look at what was done.
fn served(checkpoint: &Checkpoint, requests: &[Asked], way: &Way) -> (Vec<Vec<TokenId>>, Engine) {
    let mut engine = engine(checkpoint, &way.config);
    let mut noise = Noise::new(31);
    let mut below = |n: usize| noise.below(n as u32) as usize;
    // Who is asked about comes in order; load comes between, and some of it goes early.
    let mut coming: Vec<(Asked, Option<usize>)> = Vec::new();
    for (i, request) in requests.iter().enumerate() {
        coming.push((request.clone(), Some(i)));
    }
    for (ids, mut params) in self::requests(way.load) {
        params.seed += 1000;
        let place = below(coming.len() + 1);
        coming.insert(place, ((ids[..ids.len() / 2 + 1].to_vec(), params), None));
    }
    let mut coming = coming.into_iter().peekable();
    let mut asked: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut load = Vec::new();
    let mut answers = vec![Vec::new(); requests.len()];
    let mut num_steps = 0;
    let mut lost = way.lost_after;
    while coming.peek().is_some() || engine.has_unfinished_requests() {
        // A fresh engine takes several at once, later ones come one by one.
        let arrivals = [0, 1, 3][below(3)] + usize::from(!engine.has_unfinished_requests());
        for ((ids, params), place) in coming.by_ref().take(arrivals) {
            let id = engine.add_request(ids, params).expect("a request");
            match place {
                Some(place) => drop(asked.insert(id, place)),
                None => load.push(id),
            }
        }
        if below(8) == 0 && !load.is_empty() {
            engine.abort(load.swap_remove(below(load.len())));
        }
        match pollster::block_on(engine.step()) {
            Ok(outputs) => {
                num_steps += usize::from(!outputs.is_empty());
                for output in outputs {
                    if let Some(&place) = asked.get(&output.request_id) {
                        answers[place].extend(output.token_ids);
                        if let Some(end) = output.finished {
                            end.expect("an answer");
                        }
                    }
                }
            }
            Err(Error::Executor(ExecutorError::DeviceLost(_))) => {
                engine.replace_runner(runner(checkpoint, &way.config));
            }
            Err(error) => panic!("{}: {error}", way.name),
        }
        if lost.is_some_and(|after| num_steps >= after) {
            lost = None;
            engine.runner().executor().device().destroy();
        }
    }
    engine.scheduler().check_integrity().expect("sound");
    assert_eq!(lost, None, "{}: it was over before", way.name);
    (answers, engine)
}

fn compare(n: usize) {
    let checkpoint = checkpoint();
    let requests = requests(n);
    let alone = alone(&checkpoint, &requests);
    for way in ways() {
        let started = std::time::Instant::now();
        let (answers, engine) = served(&checkpoint, &requests, &way);
        for (i, (ours, theirs)) in answers.iter().zip(&alone).enumerate() {
            let length = requests[i].0.len();
            assert_eq!(ours, theirs, "{}: request {i}, of {length}", way.name);
        }
        let metrics = engine.scheduler().cache_metrics();
        eprintln!("{}: {:.1?}, {metrics:?}", way.name, started.elapsed());
        // What a way is named for did happen.
        match way.config.preemption_mode {
            PreemptionMode::Swap => assert!(metrics.num_preemptions_swap > 0),
            _ if way.config.num_blocks < 64 => assert!(metrics.num_preemptions_recompute > 0),
            _ => assert!(metrics.prefix_cache_hits > 0),
        }
    }
    let lengths: Vec<_> = alone.iter().map(Vec::len).collect();
    assert!(lengths.contains(&MAX_TOKENS), "{lengths:?}");
}

#[test]
fn eight_prompts_have_the_same_tokens_however_served() {
    compare(8);
}

#[test]
#[ignore = "takes minutes"]
fn forty_prompts_have_the_same_tokens_however_served() {
    compare(40);
}
