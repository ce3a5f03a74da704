//! Embeddings against a plain account of the model, and against themselves however they are served.

use crate::failing::Failing;
use crate::{PLAIN, engine, golden, limits};
use twoclock_core::engine::Embedding;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::{PreemptionMode, RequestError, SchedulerConfig};
use twoclock_core::types::{PoolingParams, PoolingType, SamplingParams};
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_tests::{Expected, Noise, PlainDecoder, gpu};

const BOTH: [PoolingType; 2] = [PoolingType::Mean, PoolingType::Last];

fn params(pooling: PoolingType) -> PoolingParams {
    PoolingParams {
        pooling,
        ..PoolingParams::default()
    }
}

fn prompt(len: usize) -> Vec<u32> {
    let mut noise = Noise::new(len as u64);
    (0..len).map(|_| noise.below(320)).collect()
}

fn generating(max_tokens: usize) -> SamplingParams {
    SamplingParams {
        max_tokens,
        ignore_eos: true,
        ..SamplingParams::default()
    }
}

/// The embeddings of these prompts, beside as many requests that generate; and how often a request
/// had to give way.
fn serve(
    executor: impl Executor,
    config: SchedulerConfig,
    prompts: &[Vec<u32>],
    pooling: PoolingType,
    beside: &[(usize, usize)],
) -> (Vec<Embedding>, u64) {
    let checkpoint = golden("models/mistral_full");
    let mut engine = engine(executor, &checkpoint, config, RunnerOptions::exact());
    for &(len, max_tokens) in beside {
        engine
            .add_request(prompt(len), generating(max_tokens))
            .expect("fits");
    }
    let requests = prompts.iter().map(|p| (p.clone(), params(pooling)));
    let answers = pollster::block_on(engine.embed(requests.collect())).expect("a device");
    let answers = answers.into_iter().map(|a| a.expect("an embedding"));
    let answers = answers.collect();
    while engine.has_unfinished_requests() {
        pollster::block_on(engine.step()).expect("a device");
    }
    let metrics = engine.scheduler().cache_metrics();
    let preemptions = metrics.num_preemptions_recompute + metrics.num_preemptions_swap;
    (answers, preemptions)
}

fn bits(embeddings: &[Embedding]) -> Vec<Vec<u32>> {
    let bits = |e: &Embedding| e.values.iter().map(|v| v.to_bits()).collect();
    embeddings.iter().map(bits).collect()
}

#[test]
fn embeddings_are_pooled_hidden_states() {
    let plain = PlainDecoder::golden(PLAIN);
    let prompts: Vec<_> = Expected::read(PLAIN)
        .into_iter()
        .map(|case| case.input_ids)
        .collect();
    let check = |what: &str, embeddings: &[Embedding], pooling| {
        for (embedding, prompt) in embeddings.iter().zip(&prompts) {
            assert_eq!(embedding.num_prompt_tokens, prompt.len());
            let hidden = plain.states(prompt).hidden;
            let pooled: Vec<f64> = match pooling {
                PoolingType::Last => hidden[hidden.len() - 1].clone(),
                PoolingType::Mean => (0..hidden[0].len())
                    .map(|i| hidden.iter().map(|row| row[i]).sum::<f64>())
                    .collect(),
            };
            let length = pooled.iter().map(|v| v * v).sum::<f64>().sqrt();
            assert_eq!(embedding.values.len(), pooled.len());
            for (value, pooled) in embedding.values.iter().zip(&pooled) {
                let difference = (f64::from(*value) - pooled / length).abs();
                assert!(difference < 1e-5, "{what}: {value}, {}", pooled / length);
            }
        }
    };
    for pooling in BOTH {
        let (cpu, _) = serve(CpuExecutor::default(), limits(64), &prompts, pooling, &[]);
        check("the reference", &cpu, pooling);
        let (device, _) = serve(&mut *gpu(), limits(64), &prompts, pooling, &[]);
        check("the device", &device, pooling);
    }
}

#[test]
fn the_same_bits_however_served() {
    let prompts = [prompt(70), prompt(9), prompt(33), prompt(1)];
    fn check<E: Executor>(executor: &mut E, prompts: &[Vec<u32>], chunks: &[(usize, usize)]) {
        for pooling in BOTH {
            let alone: Vec<_> = prompts
                .iter()
                .flat_map(|p| {
                    let p = std::slice::from_ref(p);
                    serve(&mut *executor, limits(64), p, pooling, &[]).0
                })
                .collect();
            let alone = bits(&alone);
            assert_ne!(alone[0], alone[1]);
            for &(chunk, run_ahead) in chunks {
                let beside = [(20, 30), (5, 12)];
                let config = SchedulerConfig {
                    run_ahead,
                    ..limits(chunk)
                };
                let (served, _) = serve(&mut *executor, config, prompts, pooling, &beside);
                assert!(bits(&served) == alone, "{pooling:?}, {chunk}, {run_ahead}");
            }
        }
    }
    check(
        &mut CpuExecutor::default(),
        &prompts,
        &[(1, 3), (7, 0), (64, 1)],
    );
    check(&mut *gpu(), &prompts[1..3], &[(7, 1)]);
}

#[test]
fn preemption_begins_a_sum_anew() {
    // The generating request's third and fourth block leave the other three of the four it needs.
    let prompts = [prompt(62)];
    for pooling in BOTH {
        let run = |num_blocks, preemption_mode, chunk, run_ahead| {
            let config = SchedulerConfig {
                num_blocks,
                preemption_mode,
                run_ahead,
                ..limits(chunk)
            };
            let executor = CpuExecutor::default();
            let (served, preemptions) = serve(executor, config, &prompts, pooling, &[(30, 24)]);
            (bits(&served), preemptions)
        };
        let (plain, none) = run(33, PreemptionMode::Recompute, 64, 0);
        assert_eq!(none, 0);
        for (mode, run_ahead) in [
            (PreemptionMode::Recompute, 0),
            (PreemptionMode::Swap, 0),
            (PreemptionMode::Recompute, 2),
            (PreemptionMode::Swap, 2),
        ] {
            let (served, preemptions) = run(7, mode, 3, run_ahead);
            assert!(preemptions > 0, "{mode:?}");
            assert!(served == plain, "{pooling:?}, {mode:?}");
        }
    }
}

#[test]
fn only_what_needs_no_other_token_takes_a_cached_beginning() {
    let config = |enable_prefix_caching| SchedulerConfig {
        enable_prefix_caching,
        max_num_seqs: 1,
        ..limits(64)
    };
    // A generating request computes the beginning first.
    let beside = [(50, 1)];
    for (pooling, hits) in [(PoolingType::Last, 48), (PoolingType::Mean, 0)] {
        let run = |caching| {
            let executor = CpuExecutor::default();
            serve(executor, config(caching), &[prompt(50)], pooling, &beside).0
        };
        let (cold, warm) = (run(false), run(true));
        assert_eq!(cold[0].num_cached_tokens, 0);
        assert_eq!(warm[0].num_cached_tokens, hits, "{pooling:?}");
        assert!(bits(&warm) == bits(&cold), "{pooling:?}");
    }
}

#[test]
fn a_step_computed_again_sums_nothing_twice() {
    let checkpoint = golden("models/mistral_full");
    let run = |run_ahead, fail_at| {
        let executor = Failing::new(CpuExecutor::default(), fail_at);
        let config = SchedulerConfig {
            run_ahead,
            ..limits(4)
        };
        let options = RunnerOptions::default();
        let mut engine = engine(executor, &checkpoint, config, options);
        // Its draw is launched after the pooling of the same step.
        engine.add_request(prompt(2), generating(9)).expect("fits");
        let pooling = params(PoolingType::Mean);
        let id = engine.add_pooling_request(prompt(11), pooling);
        let id = id.expect("fits");
        let (mut embedding, mut failures) = (None, 0);
        while engine.has_unfinished_requests() {
            match pollster::block_on(engine.step()) {
                Err(_) => failures += 1,
                Ok(outputs) => {
                    let its = outputs.into_iter().filter(|o| o.request_id == id);
                    embedding = its.filter_map(|o| o.embedding).next_back().or(embedding);
                }
            }
        }
        let failed = engine.runner_mut().executor().has_failed();
        assert_eq!(failures, usize::from(failed));
        (embedding.expect("an embedding"), failed)
    };
    let (plain, failed) = run(0, usize::MAX);
    assert!(!failed);
    // Three chunks of body, pooling and head.
    for run_ahead in [0, 3] {
        for fail_at in 1..=9 {
            let (embedding, failed) = run(run_ahead, fail_at);
            assert!(failed && embedding == plain, "{run_ahead}, {fail_at}");
        }
    }
}

#[test]
fn another_device_computes_what_a_lost_one_began() {
    let checkpoint = golden("models/mistral_full");
    for (pooling, run_ahead) in [
        (PoolingType::Mean, 0),
        (PoolingType::Mean, 2),
        (PoolingType::Last, 2),
    ] {
        let config = SchedulerConfig {
            run_ahead,
            ..limits(4)
        };
        let load = || {
            let (executor, options) = (CpuExecutor::default(), RunnerOptions::default());
            ModelRunner::load(executor, &checkpoint, &config, options, |_| ()).expect("loads")
        };
        let run = |lost_after| {
            let (executor, options) = (CpuExecutor::default(), RunnerOptions::default());
            let mut engine = engine(executor, &checkpoint, config.clone(), options);
            let id = engine.add_pooling_request(prompt(19), params(pooling));
            id.expect("fits");
            let (mut embedding, mut steps) = (None, 0);
            while engine.has_unfinished_requests() {
                if steps == lost_after {
                    engine.replace_runner(load());
                }
                steps += 1;
                for output in pollster::block_on(engine.step()).expect("a device") {
                    embedding = output.embedding.or(embedding);
                }
            }
            (embedding.expect("an embedding"), steps)
        };
        let (plain, steps) = run(usize::MAX);
        let (again, more) = run(3);
        assert!(more > steps);
        assert_eq!(again, plain, "{pooling:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_alone() {
    let checkpoint = golden("models/mistral_full");
    let options = RunnerOptions::default();
    let mut engine = engine(CpuExecutor::default(), &checkpoint, limits(64), options);
    let dimensions = |dimensions| PoolingParams {
        dimensions: Some(dimensions),
        ..PoolingParams::default()
    };
    let answers = pollster::block_on(engine.embed(vec![
        (prompt(4), dimensions(65)),
        (prompt(4), dimensions(64)),
        (vec![1, 320], PoolingParams::default()),
        (Vec::new(), PoolingParams::default()),
        (prompt(129), PoolingParams::default()),
        (prompt(128), PoolingParams::default()),
        (prompt(4), dimensions(0)),
        (prompt(4), dimensions(3)),
    ]))
    .expect("a device");
    let lengths: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().map(|e| e.values.len()).ok())
        .collect();
    let expected = [None, Some(64), None, None, None, Some(64), None, Some(3)];
    assert_eq!(lengths, expected);
    assert!(matches!(
        &answers[0],
        Err(RequestError::InvalidDimensions {
            dimensions: 65,
            hidden_size: 64
        })
    ));
    let whole = &answers[1].as_ref().expect("an embedding").values;
    let cut = &answers[7].as_ref().expect("an embedding").values;
    let length = whole[..3].iter().map(|v| v * v).sum::<f32>().sqrt();
    for (cut, whole) in cut.iter().zip(whole) {
        assert!((cut - whole / length).abs() < 1e-6);
    }
    // Given up, it says so and gives nothing.
    let id = engine
        .add_pooling_request(prompt(9), PoolingParams::default())
        .expect("fits");
    let said = engine.abort(id);
    assert_eq!((said.len(), &said[0].embedding), (1, &None));
    assert!(!engine.has_unfinished_requests());
}
