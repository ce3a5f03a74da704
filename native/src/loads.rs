//! Requests that have an engine run every kind of step: prompts short and long, alone and together, drawn
//! in every way, shared and copied, pooled. Knows no device.

use anyhow::bail;
use pollster::block_on;
use twoclock_core::clock::ManualClock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::{ModelRunner, RunnerOptions};
use twoclock_core::sched::SchedulerConfig;
use twoclock_core::types::{PoolingParams, PoolingType, SamplingParams};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::executor::Executor;

/// An engine that says of no step how long it took.
pub type Core<E> = EngineCore<ModelRunner<E>, ManualClock>;

/// Most sequences together.
const MOST_TOGETHER: usize = 8;
/// A context of more than one part of attention.
const LONG: usize = 270;

/// Limits under which [`serve_all_kinds`] can be served, with steps of at most so many tokens.
pub fn limits(checkpoint: &Checkpoint, tokens: usize) -> SchedulerConfig {
    let max_model_len = (LONG.max(tokens) + 20).min(checkpoint.config.max_position_embeddings);
    let defaults = SchedulerConfig::default();
    SchedulerConfig {
        max_num_seqs: MOST_TOGETHER.min(tokens),
        max_num_batched_tokens: tokens,
        max_model_len,
        num_blocks: 2 + MOST_TOGETHER + 2 * max_model_len.div_ceil(defaults.block_size),
        swap_space_bytes: 0,
        ..defaults
    }
}

/// An engine on this executor.
///
/// # Errors
/// What loading meets.
pub fn load<E: Executor>(
    executor: E,
    checkpoint: &Checkpoint,
    config: SchedulerConfig,
    options: RunnerOptions,
) -> anyhow::Result<Core<E>> {
    let runner = ModelRunner::load(executor, checkpoint, &config, options, |_| ())?;
    let clock = ManualClock::default();
    Ok(EngineCore::new(runner, clock, &checkpoint.config, config)?)
}

/// Ids of a prompt; no two seeds' prompts begin alike.
pub fn prompt(core: &Core<impl Executor>, tokens: usize, seed: u32) -> Vec<u32> {
    let vocab = core.vocab_size() as u32;
    let id = |i: u32| (seed.wrapping_mul(7919) ^ i.wrapping_mul(2_654_435_761)) % vocab;
    (0..tokens as u32).map(id).collect()
}

/// Steps until nothing is left.
///
/// # Errors
/// The device's; a request that fails.
pub fn finish(core: &mut Core<impl Executor>) -> anyhow::Result<()> {
    while core.has_unfinished_requests() {
        for output in block_on(core.step())? {
            if let Some(Err(error)) = output.finished {
                bail!("a request failed: {error}");
            }
        }
    }
    Ok(())
}

/// Serves one request in steps of one token.
///
/// # Errors
/// The device's; a request that is refused or fails.
pub fn serve_alone(core: &mut Core<impl Executor>) -> anyhow::Result<()> {
    let params = SamplingParams {
        max_tokens: 2,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    core.add_request(prompt(core, 1, 1), params)?;
    finish(core)
}

/// Serves requests of every kind, with prompts of up to so many tokens in a step.
///
/// # Errors
/// The device's; a request that is refused or fails.
pub fn serve_all_kinds<E: Executor>(core: &mut Core<E>, tokens: usize) -> anyhow::Result<()> {
    let plain = |max_tokens| SamplingParams {
        max_tokens,
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let longest = core.scheduler().config().max_model_len;
    serve_alone(core)?;
    let mut seed = 1;
    let mut serve = |core: &mut Core<E>, prompts: &[usize], params: &SamplingParams| {
        for &length in prompts {
            seed += 1;
            let length = length.min(longest - params.max_tokens);
            let prompt = prompt(core, length, seed);
            core.add_request(prompt, params.clone())?;
        }
        finish(core)
    };
    // Alone: steps of every bucket of tokens, which programs are built for.
    let lengths = (0..usize::BITS).map(|power| (1 << power) + 1);
    let shorter = lengths.take_while(|length: &usize| length.next_power_of_two() < tokens);
    for length in shorter.chain([tokens]) {
        serve(core, &[length], &plain(1))?;
    }
    for together in [3, MOST_TOGETHER] {
        serve(core, &[3; MOST_TOGETHER][..together], &plain(2))?;
    }
    serve(core, &[LONG], &plain(2))?;
    let drawn = SamplingParams {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.9,
        min_p: 0.02,
        repetition_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        logit_bias: vec![(1, 2.0)],
        logprobs: Some(2),
        seed: 5,
        ..plain(2)
    };
    serve(core, &[7, 2], &drawn)?;
    // Two answers share a page that is not full.
    let two = SamplingParams {
        n: 2,
        temperature: 1.0,
        ..plain(2)
    };
    serve(core, &[37], &two)?;
    for (seed, pooling) in [(100, PoolingType::Mean), (101, PoolingType::Last)] {
        let params = PoolingParams {
            pooling,
            ..PoolingParams::default()
        };
        let prompt = prompt(core, 11, seed);
        core.add_pooling_request(prompt, params)?;
        finish(core)?;
    }
    Ok(())
}
