//! Several prompts in one batch on the reference executor, each with its own seed.
//!
//! `cargo run --release -p twoclock-core --example batch -- MODEL.gguf "Red is" "Two and two" …`

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
    let path = args.next().ok_or("usage: batch MODEL.gguf PROMPT…")?;
    let prompts: Vec<String> = args.collect();
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

    let requests = prompts.iter().enumerate().map(|(seed, prompt)| {
        let params = SamplingParams {
            max_tokens: 16,
            temperature: 0.7,
            seed: seed as u64,
            ..SamplingParams::default()
        };
        (Prompt::Text(prompt.clone()), params)
    });
    let answers = pollster::block_on(engine.generate(requests.collect()))?;
    for (prompt, answer) in prompts.iter().zip(answers) {
        match answer {
            Ok(answer) => println!("{prompt}{}\n", answer.text),
            Err(error) => println!("{prompt}: {error}\n"),
        }
    }
    Ok(())
}
