//! What sharing a device costs those who share it, on SmolLM2: tokens a second of many sequences
//! against one, and the times between tokens while another's long prompt is computed.
//! `cargo bench -p twoclock-tests --bench serving`, with the model's file in `TWOCLOCK_SMOLLM2`.
//! Medians of three rounds, each against its own neighbours.

use std::time::{Duration, Instant};
use twoclock_core::clock::Clock;
use twoclock_core::engine::{EngineCore, StepRecord};
use twoclock_core::model::{ComputeDtype, KvCacheDtype};
use twoclock_core::runner::{MemoryPlan, ModelRunner, RunnerOptions};
use twoclock_core::sched::{CostModel, Hardware, ModelShape, SchedulerConfig, ServiceLevel};
use twoclock_core::types::{RequestId, SamplingParams};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::gpu::WgpuExecutor;
use twoclock_shaders::kernels::matmul::Regime;
use twoclock_tests::{Reference, gpu, model_of_variable};

struct WallClock(Instant);

impl Clock for WallClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

type Engine<'e> = EngineCore<ModelRunner<&'e mut WgpuExecutor>, WallClock>;

const ROUNDS: usize = 3;
const PROMPT: usize = 2000;

fn engine<'e>(
    gpu: &'e mut WgpuExecutor,
    checkpoint: &Checkpoint,
    slo: Option<ServiceLevel>,
) -> Engine<'e> {
    let config = SchedulerConfig {
        max_num_seqs: 16,
        max_model_len: 2048,
        num_blocks: 1 + 3 * 2048 / 32,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    };
    let plan = MemoryPlan::new(
        gpu.caps(),
        checkpoint,
        &config,
        ComputeDtype::default(),
        KvCacheDtype::default(),
    );
    let shape = ModelShape::new(&checkpoint.config, plan.expect("a plan").weights, 4.0);
    let options = RunnerOptions::default();
    let tile = Regime::token_tile(gpu.caps()) as usize;
    let runner = ModelRunner::load(gpu, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = WallClock(Instant::now());
    let mut engine = EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine");
    let cost = CostModel::new(shape, Hardware::unmeasured(8 << 30)).with_token_tile(tile);
    engine.set_cost_model(cost, slo);
    engine
}

fn add(engine: &mut Engine<'_>, ids: &[u32], max_tokens: usize) -> RequestId {
    let params = SamplingParams {
        max_tokens,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    engine.add_request(ids.to_vec(), params).expect("a request")
}

/// Requests that a step brought a token, and when.
fn step(engine: &mut Engine<'_>) -> (Vec<RequestId>, Duration) {
    let outputs = pollster::block_on(engine.step()).expect("a device");
    let drew = outputs.iter().filter(|output| !output.token_ids.is_empty());
    (drew.map(|o| o.request_id).collect(), engine.clock().now())
}

/// Tokens a second of so many sequences, from when all have begun to when all are over.
fn tokens_per_second(engine: &mut Engine<'_>, text: &[u32], n: usize) -> f64 {
    const TOKENS: usize = 33;
    for i in 0..n {
        add(engine, &text[i * 7..i * 7 + 24], TOKENS);
    }
    let mut begun = Vec::new();
    let (mut drawn, mut start, mut end) = (0, Duration::ZERO, Duration::ZERO);
    while engine.has_unfinished_requests() {
        let (ids, now) = step(engine);
        if begun.len() == n {
            drawn += ids.len();
            end = now;
        } else {
            begun.extend(ids);
            begun.sort_unstable();
            begun.dedup();
            start = now;
        }
    }
    drawn as f64 / (end - start).as_secs_f64()
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

/// The usual median time between tokens of four sequences, the 95th percentile while a long prompt
/// is computed beside them, and how long that takes; seconds.
fn beside_a_prompt(engine: &mut Engine<'_>, text: &[u32]) -> [f64; 3] {
    let readers: Vec<_> = (0..4)
        .map(|i| add(engine, &text[i * 9..i * 9 + 24], 1000))
        .collect();
    let mut last = [Duration::ZERO; 4];
    let mut intervals = |engine: &mut Engine<'_>, until: &mut dyn FnMut(&[RequestId]) -> bool| {
        let mut all = Vec::new();
        loop {
            let (ids, now) = step(engine);
            for (reader, last) in readers.iter().zip(&mut last) {
                if ids.contains(reader) {
                    if *last > Duration::ZERO {
                        all.push((now - *last).as_secs_f64());
                    }
                    *last = now;
                }
            }
            if until(&ids) {
                return all;
            }
        }
    };
    let mut steps = 0;
    intervals(engine, &mut |_| {
        steps += 1;
        steps == 12
    });
    let mut steps = 0;
    let mut usual = intervals(engine, &mut |_| {
        steps += 1;
        steps == 40
    });
    let long: Vec<u32> = text.iter().copied().cycle().take(PROMPT).collect();
    let start = engine.clock().now();
    let prompt = add(engine, &long, 1);
    let mut beside = intervals(engine, &mut |ids| ids.contains(&prompt));
    let took = engine.clock().now() - start;
    for reader in readers {
        engine.abort(reader);
    }
    while engine.has_unfinished_requests() {
        step(engine);
    }
    let beside = quantile(&mut beside, 0.95);
    let records = engine.step_costs().expect("a cost model").records();
    let mut with: Vec<_> = records.filter(|r| r.num_seqs == 5).copied().collect();
    with.truncate(with.len().saturating_sub(1));
    let median =
        |of: fn(&StepRecord) -> f64| quantile(&mut with.iter().map(of).collect::<Vec<_>>(), 0.5);
    println!(
        "  {} steps of {} tokens, predicted to take {:.1} ms, took {:.1} ms (medians)",
        with.len(),
        median(|r| r.num_tokens as f64),
        1e3 * median(|r| r.predicted),
        1e3 * median(|r| r.measured),
    );
    [quantile(&mut usual, 0.5), beside, took.as_secs_f64()]
}

fn main() {
    // `-- rates` or `-- itl` measures that alone.
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let named = |name: &str| asked.iter().any(|arg| arg == name);
    let all = !named("rates") && !named("itl");
    let checkpoint = model_of_variable("TWOCLOCK_SMOLLM2", "twoclock pull smollm2");
    let text = Reference::read("smollm2.json").text();
    let mut gpu = gpu();
    if all || named("rates") {
        rates(&mut gpu, &checkpoint, &text);
    }
    if all || named("itl") {
        intervals(&mut gpu, &checkpoint, &text);
    }
}

fn rates(gpu: &mut WgpuExecutor, checkpoint: &Checkpoint, text: &[u32]) {
    println!("tokens/s      1 seq   4 seqs  16 seqs   16 against 1");
    let mut ratios = Vec::new();
    let mut shared = engine(gpu, checkpoint, None);
    // Compiles what is needed.
    tokens_per_second(&mut shared, text, 16);
    for _ in 0..ROUNDS {
        let rates = [1, 4, 16].map(|n| tokens_per_second(&mut shared, text, n));
        ratios.push(rates[2] / rates[0]);
        let [one, four, sixteen] = rates;
        let ratio = sixteen / one;
        println!("          {one:9.2}{four:9.2}{sixteen:9.2}{ratio:15.2}");
    }
    println!("median {:.2}\n", quantile(&mut ratios, 0.5));
}

fn intervals(gpu: &mut WgpuExecutor, checkpoint: &Checkpoint, text: &[u32]) {
    println!("ITL of four beside a prompt of {PROMPT} tokens");
    println!("policy       usual median   p95 beside    ratio   prompt takes");
    for (name, slo, rounds) in [
        ("ridge", Some(ServiceLevel::default()), ROUNDS),
        ("fixed", None, 1),
    ] {
        let mut shared = engine(gpu, checkpoint, slo);
        tokens_per_second(&mut shared, text, 4);
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let [usual, beside, took] = beside_a_prompt(&mut shared, text);
            ratios.push(beside / usual);
            let (usual_ms, beside_ms) = (usual * 1e3, beside * 1e3);
            let ratio = beside / usual;
            println!("{name:10} {usual_ms:12.1} ms{beside_ms:10.1} ms{ratio:9.2}{took:13.1} s");
        }
        println!(
            "{name:10} median of ratios {:.2}",
            quantile(&mut ratios, 0.5)
        );
    }
}
