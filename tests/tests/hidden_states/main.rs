//! What is inside a model, on both executors: recorded residual streams and final hidden states, and
//! embeddings made of them.

#![allow(missing_docs, reason = "a test binary has no public surface")]

mod failing;
mod pooling;
mod taps;

use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::Executor;
use twoclock_tests::GoldenDir;

/// The plainest of the golden checkpoints.
const PLAIN: &str = "mistral_full";

fn golden(dir: &'static str) -> Checkpoint {
    let config = "config.json";
    Checkpoint::from_hf(&GoldenDir { dir, config }).unwrap_or_else(|e| panic!("{dir}: {e}"))
}

fn limits(chunk: usize) -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 64,
        max_model_len: 128,
        block_size: 16,
        num_blocks: 33,
        max_prefill_chunk: Some(chunk),
        enable_prefix_caching: false,
        // A tap is read before another step is launched.
        run_ahead: 0,
        ..SchedulerConfig::default()
    }
}

fn engine<E: Executor>(
    executor: E,
    checkpoint: &Checkpoint,
    config: SchedulerConfig,
    options: RunnerOptions,
) -> EngineCore<ModelRunner<E>, ManualClock> {
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ()).expect("loads");
    let clock = ManualClock::default();
    EngineCore::new(runner, clock, &checkpoint.config, config).expect("an engine")
}
