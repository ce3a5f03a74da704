//! Requests through an engine, timed by what comes out of it. Knows neither model nor device.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::bail;
use pollster::block_on;
use twoclock_core::clock::Clock;
use twoclock_core::engine::EngineCore;
use twoclock_core::runner::ExecuteModel;
use twoclock_core::types::SamplingParams;

/// What to serve.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests, all at once.
    pub requests: usize,
    /// Tokens of each prompt.
    pub prompt: usize,
    /// Tokens drawn of each.
    pub tokens: usize,
}

/// How long it took.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Seconds until every request had its first token.
    pub first: f64,
    /// Seconds from then to the end.
    pub rest: f64,
    /// Tokens drawn meanwhile.
    pub tokens: usize,
}

/// Serves a load of random prompts, no two of which begin alike. `seed` is counted up.
///
/// # Errors
/// The device's; a request that is refused or fails.
pub fn serve<R: ExecuteModel, C: Clock>(
    core: &mut EngineCore<R, C>,
    load: Load,
    seed: &mut u64,
) -> anyhow::Result<Served> {
    let vocab = core.vocab_size() as u64;
    let begin = Instant::now();
    let mut drawn = BTreeMap::new();
    for _ in 0..load.requests {
        let mut bits = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((*seed >> 33) % vocab) as u32
        };
        let prompt = (0..load.prompt).map(|_| bits()).collect();
        let params = SamplingParams {
            max_tokens: load.tokens,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        drawn.insert(core.add_request(prompt, params)?, 0);
    }
    let (mut first, mut at_first) = (None, 0);
    while core.has_unfinished_requests() {
        for output in block_on(core.step())? {
            if let Some(Err(error)) = output.finished {
                bail!("a request failed: {error}");
            }
            *drawn.entry(output.request_id).or_default() += output.token_ids.len();
        }
        if first.is_none() && drawn.values().all(|&n| n > 0) {
            first = Some(begin.elapsed().as_secs_f64());
            at_first = drawn.values().sum();
        }
    }
    let end = begin.elapsed().as_secs_f64();
    let all: usize = drawn.values().sum();
    if all != load.requests * load.tokens {
        bail!(
            "{all} tokens came of {} requests for {}",
            load.requests,
            load.tokens
        );
    }
    let first = first.unwrap_or(end);
    Ok(Served {
        first,
        rest: end - first,
        tokens: all - at_first,
    })
}
