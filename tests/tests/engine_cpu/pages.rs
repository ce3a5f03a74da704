//! Too few pages: requests that give way and come back, and windows that leave pages behind.

use super::{Model, PLAIN, Serving, engine, limits, options, prompt, reference};
use twoclock_core::runner::{NumericsClass, RunnerOptions};
use twoclock_core::sched::{PreemptionMode, SchedulerConfig};
use twoclock_core::types::SamplingParams;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_tests::LogitsBits;

/// Three requests in pages for two: whoever gives way comes back with pages computed again, or moved
/// to the host and back.
#[test]
fn preemption_changes_nothing() {
    use DeviceKind::{Cpu, Gpu};
    use NumericsClass::{Coop, F16, F32, Int8};
    for (model, kv, (class, kind)) in [
        (Model::Full, KvDtype::F32, (Int8, Cpu)),
        (Model::Mixed, KvDtype::Int8, (F16, Gpu)),
        (Model::Gemma, KvDtype::F16, (Coop, Gpu)),
        (Model::Mixture, KvDtype::F32, (F32, Gpu)),
    ] {
        let run = |num_blocks, preemption_mode, enable_prefix_caching, run_ahead| {
            let config = SchedulerConfig {
                num_blocks,
                preemption_mode,
                enable_prefix_caching,
                ..limits(Serving {
                    block_size: 16,
                    chunk: 100,
                    run_ahead,
                    ..PLAIN
                })
            };
            let vocab = model.checkpoint().config.vocab_size;
            let (executor, logits) = LogitsBits::new(reference(class, kind), vocab);
            let mut engine = engine(executor, model, config, options(class, kv));
            let requests = [200, 201, 203].map(|len| {
                let params = SamplingParams {
                    max_tokens: 24,
                    ignore_eos: true,
                    logprobs: Some(0),
                    ..SamplingParams::default()
                };
                (prompt(len), params)
            });
            let answers = pollster::block_on(engine.generate(requests.to_vec()));
            let ids = answers.expect("a device").into_iter();
            let ids = ids.map(|answer| answer.expect("an answer").token_ids);
            let mut rows = logits.take();
            rows.sort_unstable();
            let metrics = engine.scheduler().cache_metrics();
            let preemptions = (
                metrics.num_preemptions_recompute,
                metrics.num_preemptions_swap,
            );
            ((ids.collect::<Vec<_>>(), rows), preemptions)
        };
        let (plain, none) = run(60, PreemptionMode::Recompute, false, 0);
        assert_eq!(none, (0, 0));
        for (mode, caching, run_ahead) in [
            (PreemptionMode::Recompute, true, 1),
            (PreemptionMode::Swap, false, 0),
            (PreemptionMode::Swap, true, 3),
        ] {
            let (answers, (recomputed, swapped)) = run(41, mode, caching, run_ahead);
            let swaps = mode == PreemptionMode::Swap;
            assert_eq!((recomputed == 0, swapped == 0), (swaps, !swaps));
            assert!(
                answers == plain,
                "{model:?}, {class:?}, {mode:?}, {caching}"
            );
        }
    }
}

/// Generates token after token where the pages hold a window and no more.
#[test]
fn a_long_answer_takes_no_more_pages_than_its_window() {
    let answer = |num_blocks| {
        let config = SchedulerConfig {
            num_blocks,
            ..limits(Serving {
                block_size: 16,
                ..PLAIN
            })
        };
        let (executor, options) = (CpuExecutor::default(), RunnerOptions::default());
        let mut engine = engine(executor, Model::Sliding, config, options);
        let params = SamplingParams {
            max_tokens: 150,
            ignore_eos: true,
            temperature: 1.0,
            ..SamplingParams::default()
        };
        engine.add_request(prompt(100), params).expect("fits");
        let (mut ids, mut most) = (Vec::new(), 0);
        while engine.has_unfinished_requests() {
            for output in pollster::block_on(engine.step()).expect("a device") {
                ids.extend(output.token_ids);
            }
            let kv = engine.scheduler().kv_cache();
            most = most.max(kv.num_usable_blocks() - kv.num_free_blocks());
        }
        (ids, most)
    };
    let (ids, held) = answer(1 + 768 / 16);
    assert_eq!(ids.len(), 150);
    // A window of 37 lies in four pages at most, and needs them.
    assert!(held <= 4, "{held} pages");
    assert_eq!(answer(1 + 4), (ids, held));
}
