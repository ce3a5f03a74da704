//! One prompt, one answer, on the reference executor.
//!
//! `cargo run --release -p twoclock-core --example generate -- MODEL.gguf "The sea is"`

use std::io::Write as _;
use std::sync::Arc;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::{EngineCore, LlmEngine, Prompt};
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::SamplingParams;
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::cpu::CpuExecutor;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(prompt)) = (args.next(), args.next()) else {
        return Err("usage: generate MODEL.gguf PROMPT".into());
    };
    let checkpoint = Checkpoint::from_gguf(Arc::new((path.clone(), std::fs::read(&path)?)))?;
    let tokenizer = Tokenizer::from_assets(&checkpoint.text)?;

    let config = SchedulerConfig {
        max_model_len: checkpoint.config.max_position_embeddings.min(2048),
        ..SchedulerConfig::default()
    };
    let executor = CpuExecutor::default();
    let options = RunnerOptions::default();
    let runner = ModelRunner::load(executor, &checkpoint, &config, options, |_| ())?;
    let core = EngineCore::new(runner, ManualClock::default(), &checkpoint.config, config)?;
    let mut engine = LlmEngine::new(core, tokenizer);

    let params = SamplingParams {
        max_tokens: 32,
        ..SamplingParams::default()
    };
    engine.add_request(Prompt::Text(prompt), params)?;
    while engine.has_unfinished_requests() {
        for output in pollster::block_on(engine.step())? {
            print!("{}", output.text);
            std::io::stdout().flush()?;
        }
    }
    println!();
    Ok(())
}
