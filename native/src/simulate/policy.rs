//! Ways of scheduling by name: what this engine does, and what came before it, as switches of the one
//! scheduler. Runs nothing.

use std::fmt;
use std::str::FromStr;

use twoclock_core::sched::{
    Batching, CostModel, PreemptionMode, PrefillMode, Reservation, RidgeBudget, SchedulerConfig,
    ServiceLevel,
};

/// Limits that all policies share.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest sequence.
    pub max_model_len: usize,
    /// Most sequences in a step.
    pub max_num_seqs: usize,
    /// Tokens a block.
    pub block_size: usize,
    /// Blocks, the null block among them.
    pub num_blocks: usize,
    /// Most tokens a step, where prompts are chunked and nobody said otherwise.
    pub max_num_batched_tokens: usize,
    /// Requests share equal beginnings, in policies that can.
    pub prefix_caching: bool,
}

/// A way of scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Paged and chunked, with as many prompt tokens a step as the cost model allows.
    Ridge,
    /// Paged and chunked, with so many tokens a step; `None` for the limit's.
    Fixed(Option<usize>),
    /// Paged; prompts whole and before decodes; no shared beginnings (vLLM in its paper).
    Vllm,
    /// Iterations are scheduled, prompts whole beside decodes; slots reserved in one piece (Orca).
    Orca(Reservation),
    /// A batch runs until its longest answer is done; slots reserved in one piece (request level
    /// scheduling, as in `FasterTransformer`).
    Static(Reservation),
}

/// What may be asked for.
pub const NAMES: &str = "ridge, fixed, fixed:TOKENS, vllm-2023, orca, orca-max, orca-pow2, orca-oracle, static, static-oracle";

/// What each does, a few words a line.
pub const DESCRIPTIONS: &str = "  \
  ridge          this engine: pages, prompts in chunks beside decodes, and as many prompt tokens
                 a step as the cost model finds room for (free, or within the times to keep)
  fixed          the same with one budget of tokens a step, --max-num-batched-tokens, decodes
                 first: chunked prefill as in Sarathi-Serve, and as in vLLM since
  fixed:TOKENS   the same with this budget
  vllm-2023      vLLM as in its paper of 2023 (also: vllm), not that of today: pages, but prompts
                 whole and before all decodes, and equal beginnings are computed again
  orca-max       iterations scheduled one by one, prompts whole beside decodes; key/value slots
                 reserved in one piece, for the longest sequence there may be (also: orca)
  orca-pow2      the same, reserving for the answer's length up to a power of two
  orca-oracle    the same, reserving for the answer's true length, which no server knows
  static         a batch runs until its longest answer is done, and only then come others; slots
                 as orca-max
  static-oracle  the same, slots as orca-oracle";

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "ridge" => Self::Ridge,
            "fixed" => Self::Fixed(None),
            "vllm-2023" | "vllm" => Self::Vllm,
            "orca" | "orca-max" => Self::Orca(Reservation::MaxModelLen),
            "orca-pow2" => Self::Orca(Reservation::PowerOfTwo),
            "orca-oracle" => Self::Orca(Reservation::MaxTokens),
            "static" => Self::Static(Reservation::MaxModelLen),
            "static-oracle" => Self::Static(Reservation::MaxTokens),
            other => match other.strip_prefix("fixed:").map(str::parse) {
                Some(Ok(tokens)) if (1..=MOST_TOKENS).contains(&tokens) => {
                    Self::Fixed(Some(tokens))
                }
                _ => return Err(format!("{other:?} is no policy; there are {NAMES}")),
            },
        })
    }
}

/// Most tokens a step of whole prompts takes.
const MOST_TOKENS: usize = 65_535;
/// What a step of vLLM took before it chunked prompts, where sequences were not longer.
const VLLM_TOKENS: usize = 2560;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Ridge => "ridge",
            Self::Fixed(None) => "fixed",
            Self::Fixed(Some(tokens)) => return write!(f, "fixed:{tokens}"),
            Self::Vllm => "vllm-2023",
            Self::Orca(Reservation::PowerOfTwo) => "orca-pow2",
            Self::Orca(Reservation::MaxTokens) => "orca-oracle",
            Self::Orca(_) => "orca-max",
            Self::Static(Reservation::MaxTokens) => "static-oracle",
            Self::Static(_) => "static",
        };
        f.pad(name)
    }
}

impl Policy {
    /// The scheduler's switches.
    pub fn config(self, limits: &Limits) -> SchedulerConfig {
        let chunked = SchedulerConfig {
            max_num_seqs: limits.max_num_seqs,
            max_num_batched_tokens: limits.max_num_batched_tokens.min(MOST_TOKENS),
            max_model_len: limits.max_model_len,
            block_size: limits.block_size,
            num_blocks: limits.num_blocks,
            enable_prefix_caching: limits.prefix_caching,
            preemption_mode: PreemptionMode::Auto,
            // Every output is there before the next step begins.
            run_ahead: 0,
            ..SchedulerConfig::default()
        };
        let before = SchedulerConfig {
            max_num_batched_tokens: MOST_TOKENS,
            prefill_mode: PrefillMode::Whole,
            enable_prefix_caching: false,
            preemption_mode: PreemptionMode::Recompute,
            ..chunked.clone()
        };
        match self {
            Self::Ridge | Self::Fixed(None) => chunked,
            Self::Fixed(Some(tokens)) => SchedulerConfig {
                max_num_batched_tokens: tokens,
                ..chunked
            },
            Self::Vllm => SchedulerConfig {
                max_num_batched_tokens: VLLM_TOKENS.max(limits.max_model_len).min(MOST_TOKENS),
                prefill_mode: PrefillMode::First,
                ..before
            },
            Self::Orca(reservation) => SchedulerConfig {
                reservation,
                ..before
            },
            Self::Static(reservation) => SchedulerConfig {
                batching: Batching::Static,
                reservation,
                ..before
            },
        }
    }

    /// The budget of prompt tokens, where the cost model sets it.
    pub fn budget(
        self,
        cost: &CostModel,
        slo: ServiceLevel,
        limits: &Limits,
    ) -> Option<RidgeBudget> {
        let budget = || RidgeBudget::new(cost.clone(), slo, limits.max_num_batched_tokens);
        (self == Self::Ridge).then(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_its_switches_are_possible() {
        let limits = Limits {
            max_model_len: 2048,
            max_num_seqs: 16,
            block_size: 16,
            num_blocks: 200,
            max_num_batched_tokens: 512,
            prefix_caching: true,
        };
        for name in NAMES.split(", ") {
            let name = name.replace("TOKENS", "700");
            let policy: Policy = name.parse().unwrap();
            assert!(policy.to_string().starts_with(&name));
            let described = name.replace("700", "TOKENS").replace("orca", "orca-max");
            let described = described.replace("orca-max-", "orca-");
            let line = format!("  {described} ");
            assert!(DESCRIPTIONS.lines().any(|l| l.starts_with(&line)), "{line}");
            // Wider help is broken anew.
            assert!(DESCRIPTIONS.lines().all(|l| l.len() < 100));
            policy.config(&limits).validate().unwrap();
        }
        assert_eq!("vllm".parse(), Ok(Policy::Vllm));
        for bad in ["", "fixed:", "fixed:0", "fixed:70000", "ridges"] {
            assert!(bad.parse::<Policy>().unwrap_err().contains("orca-pow2"));
        }
    }
}
