//! Pages that are shared, copied and moved, on a device: the same bits as without.

use crate::{device, options, tiny};
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{Completion, EngineCore};
use twoclock_core::runner::{ModelRunner, NumericsClass};
use twoclock_core::sched::{CacheMetrics, PreemptionMode, SchedulerConfig};
use twoclock_core::types::SamplingParams;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_tests::LogitsBits;

/// What `auto` comes to on processors, and on GPUs.
const CLASSES: [NumericsClass; 2] = [NumericsClass::Int8, NumericsClass::F16];

fn limits() -> SchedulerConfig {
    SchedulerConfig {
        max_model_len: 128,
        max_num_batched_tokens: 64,
        block_size: 16,
        num_blocks: 1 + 256 / 16,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    }
}

fn drawing(max_tokens: usize) -> SamplingParams {
    SamplingParams {
        max_tokens,
        ignore_eos: true,
        temperature: 1.0,
        logprobs: Some(0),
        ..SamplingParams::default()
    }
}

/// What serving some requests gave.
struct Served {
    /// Rows of logits of all drawn tokens, to the bit, sorted.
    logits: Vec<Vec<u32>>,
    answers: Vec<Completion>,
    metrics: CacheMetrics,
}

/// Serves prompts of the first ids, by length; those of a wave together.
fn serve(
    config: SchedulerConfig,
    (class, dtype): (NumericsClass, KvDtype),
    waves: &[&[(u32, SamplingParams)]],
) -> Served {
    let checkpoint = tiny().windowed(11, &[true, false, true]);
    let (executor, logits) = LogitsBits::new(device(), checkpoint.config.vocab_size);
    let options = options(class, dtype);
    let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let mut answers = Vec::new();
    for wave in waves {
        let requests = wave
            .iter()
            .map(|(len, params)| ((1..=*len).collect(), params.clone()));
        let wave = pollster::block_on(engine.generate(requests.collect())).expect("a device");
        answers.extend(wave.into_iter().map(|answer| answer.expect("an answer")));
    }
    let mut logits = logits.take();
    logits.sort_unstable();
    let drawn: usize = answers.iter().map(|answer| answer.token_ids.len()).sum();
    assert_eq!(logits.len(), drawn, "a row a token");
    Served {
        logits,
        answers,
        metrics: engine.scheduler().cache_metrics(),
    }
}

impl Served {
    fn num_cached_tokens(&self) -> Vec<usize> {
        self.answers.iter().map(|a| a.num_cached_tokens).collect()
    }
}

#[test]
fn shared_pages_give_the_same_bits() {
    let waves = [50, 49, 70].map(|len| [(len, drawing(9))]);
    let waves = [&waves[0][..], &waves[1], &waves[2]];
    let caching = SchedulerConfig {
        enable_prefix_caching: true,
        ..limits()
    };
    let with = (NumericsClass::F16, KvDtype::F16);
    let plain = serve(limits(), with, &waves);
    assert_eq!(plain.num_cached_tokens(), [0; 3]);
    let shared = serve(caching, with, &waves);
    assert_eq!(shared.num_cached_tokens(), [0, 48, 48]);
    assert!(shared.logits == plain.logits);
}

#[test]
fn answers_of_one_prompt_are_those_of_requests_alone() {
    let seeded = |n, seed| {
        let params = SamplingParams {
            n,
            seed,
            ..drawing(9)
        };
        serve(
            limits(),
            (NumericsClass::Int8, KvDtype::Int8),
            &[&[(43, params)]],
        )
    };
    let mut alone = [seeded(1, 3).logits, seeded(1, 4).logits].concat();
    alone.sort_unstable();
    let both = seeded(2, 3);
    assert_eq!(both.num_cached_tokens(), [0, 42]);
    assert!(both.metrics.num_copied_blocks > 0);
    assert!(both.logits == alone);
}

#[test]
fn swapped_pages_give_the_same_bits() {
    let wave = [(50, drawing(25)), (51, drawing(25))];
    let few = SchedulerConfig {
        num_blocks: 9,
        preemption_mode: PreemptionMode::Swap,
        ..limits()
    };
    for class in CLASSES {
        let plain = serve(limits(), (class, KvDtype::Int8), &[&wave]);
        let swapped = serve(few.clone(), (class, KvDtype::Int8), &[&wave]);
        assert_eq!(plain.metrics.num_preemptions_swap, 0);
        assert_eq!(swapped.metrics.num_preemptions_swap, 1);
        assert!(swapped.logits == plain.logits, "{class:?}");
    }
}
