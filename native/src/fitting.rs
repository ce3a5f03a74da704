//! The limits of an engine, made to fit the memory it may take, or what to ask for instead. Knows no device and no
//! file: is told what each limits take.

use anyhow::bail;
use twoclock_core::error::Error;
use twoclock_core::runner::MemoryPlan;
use twoclock_core::sched::SchedulerConfig;

use crate::kv_cache_tokens::KvCacheTokens;
use crate::memory_advice::{blocks, most, what_fits};

/// These limits with as many tokens kept as fit, of which so many were asked for, and what they take of the memory, if
/// that is known. `for_one` says the limits with room for one sequence of so many tokens.
///
/// # Errors
/// Nothing like it fits, with what would.
pub fn fitted(
    config: &SchedulerConfig,
    tokens: Option<KvCacheTokens>,
    memory: Option<u64>,
    for_one: impl Fn(usize) -> SchedulerConfig,
    plan: impl Fn(&SchedulerConfig) -> Result<MemoryPlan, Error>,
) -> anyhow::Result<(SchedulerConfig, MemoryPlan)> {
    let available = memory.unwrap_or(u64::MAX);
    let with = |num_blocks| SchedulerConfig {
        num_blocks,
        ..config.clone()
    };
    let fits = |n| plan(&with(n)).is_ok_and(|plan| plan.total() <= available);
    let kept = |num_blocks: usize| (num_blocks - 1) * config.block_size;
    let wished = config.num_blocks;
    let one = for_one(config.max_model_len).num_blocks;
    let num_blocks = blocks(tokens, one, wished, fits);
    let fitted = with(num_blocks);
    let plan_of_it = plan(&fitted)?;
    if let Some(Err(error)) = memory.map(|available| plan_of_it.check(available)) {
        let needs = |max_model_len| {
            let plan = plan(&for_one(max_model_len));
            plan.ok().map(|plan| plan.total())
        };
        let hint = match tokens {
            Some(KvCacheTokens::Tokens(_)) if fits(one) => {
                format!(": --kv-cache-tokens {} fits", kept(most(one, wished, fits)))
            }
            Some(KvCacheTokens::Tokens(_)) => {
                let hint = what_fits(config.max_model_len, available, needs);
                format!("{hint} without --kv-cache-tokens")
            }
            _ => what_fits(config.max_model_len, available, needs),
        };
        bail!("{error}{hint}");
    }
    if num_blocks < wished {
        tracing::warn!(
            kv_cache_tokens = kept(num_blocks),
            usual = kept(wished),
            "keys and values of fewer tokens are kept than is usual, as many as fit: with more --memory more requests \
             run together"
        );
    }
    Ok((fitted, plan_of_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use twoclock_core::model::NumericsClass;
    use twoclock_shaders::kernels::kv::KvDtype;

    /// Weights of 100 KiB, and 1 KiB for each block.
    fn plan(limits: &SchedulerConfig) -> Result<MemoryPlan, Error> {
        Ok(MemoryPlan {
            weights: 100 << 10,
            kv_cache: (limits.num_blocks as u64) << 10,
            workspace: 0,
            kv_tokens: 0,
            numerics: NumericsClass::F32,
            kv_dtype: KvDtype::F16,
            kv_token_bytes: 0,
        })
    }

    #[test]
    fn the_usual_gives_way_and_what_was_given_is_told_what_fits() {
        let block = SchedulerConfig::default().block_size;
        let room = |max_model_len: usize, tokens: usize| SchedulerConfig {
            max_model_len,
            num_blocks: 1 + tokens.div_ceil(block),
            ..SchedulerConfig::default()
        };
        let fit = |tokens, kib: u64| {
            let kept = match tokens {
                KvCacheTokens::Max => 4096,
                _ => 16384,
            };
            let config = room(4096, kept);
            let fitted = fitted(
                &config,
                Some(tokens),
                Some(kib << 10),
                |len| room(len, len),
                plan,
            );
            fitted
                .map(|(config, _)| config.num_blocks * block)
                .map_err(|error| error.to_string())
        };
        let (usual, given) = (KvCacheTokens::Usual, KvCacheTokens::Tokens(16384));
        let one = (4096 / block + 1) as u64;
        let four = (4 * 4096 / block + 1) as u64;
        for kib in [four + 1, four, four - 1, one + 1, one] {
            assert_eq!(fit(usual, 100 + kib), Ok(kib.min(four) as usize * block));
        }
        assert_eq!(
            fit(KvCacheTokens::Max, 100 + four + 7),
            Ok((four + 7) as usize * block)
        );
        // Not even one of the longest sequences.
        let said = fit(usual, 100 + one - 1).unwrap_err();
        let shorter = 4096 - block;
        assert!(
            said.ends_with(&format!(": --max-model-len {shorter} fits")),
            "{said}"
        );
        let said = fit(given, 100 + one + 1).unwrap_err();
        let tokens = 4096 + block;
        assert!(
            said.ends_with(&format!(": --kv-cache-tokens {tokens} fits")),
            "{said}"
        );
        let said = fit(given, 100 + one - 1).unwrap_err();
        let told = format!(": --max-model-len {shorter} fits without --kv-cache-tokens");
        assert!(said.ends_with(&told), "{said}");
        assert_eq!(fit(given, 100 + four), Ok(four as usize * block));
    }
}
