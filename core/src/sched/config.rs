//! The limits a scheduler keeps. Knows no request, and of a model only how far it reaches.

use super::reservation::Reservation;
use thiserror::Error;

use crate::config::ModelConfig;

/// Most tokens a step can have: kernels count them in one dimension of a grid, and devices promise
/// no more workgroups in one (WebGPU's `maxComputeWorkgroupsPerDimension`).
pub const MAX_BATCHED_TOKENS: usize = 65535;

/// Most steps launched ahead. One hides the host's work of a step behind the device's; more hide how
/// unevenly it comes, and every one delays by a step what the host decides by a token it sees.
pub const MAX_RUN_AHEAD: usize = 3;

/// What becomes of a request that gives up its blocks to an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionMode {
    /// What it loses is computed again.
    #[default]
    Recompute,
    /// Its pages go to host memory, as far as there is room.
    Swap,
    /// What is predicted to be cheaper; computed again where nobody predicts.
    Auto,
}

/// When waiting requests are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// At every step.
    #[default]
    Continuous,
    /// When all that ran have ended, as engines did before iterations were scheduled; here to be
    /// compared with.
    Static,
}

/// How prompts are put into steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefillMode {
    /// In chunks, beside decodes.
    #[default]
    Chunked,
    /// Whole, beside decodes, which wait for the longer step; as in Orca. Here to be compared with.
    Whole,
    /// Whole, in steps without decodes, before them; as in vLLM until it chunked. Here to be compared
    /// with.
    First,
}

/// Limits of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Most tokens in one step, up to [`MAX_BATCHED_TOKENS`].
    pub max_num_batched_tokens: usize,
    /// Longest sequence, prompt and answer together.
    pub max_model_len: usize,
    /// Tokens a KV block: 16 or 32.
    pub block_size: usize,
    /// KV blocks there are for layers that attend to everything, the null block 0 among them; at
    /// most so many for those with a window.
    pub num_blocks: usize,
    /// Most tokens of one request in one step; `None` leaves it to `max_num_batched_tokens`.
    pub max_prefill_chunk: Option<usize>,
    /// Whether requests share the blocks of equal beginnings. No value changes a bit of any answer.
    pub enable_prefix_caching: bool,
    /// What becomes of preempted requests. No value changes a bit of any answer.
    pub preemption_mode: PreemptionMode,
    /// Host memory for pages of preempted requests, bytes.
    pub swap_space_bytes: u64,
    /// Steps that are launched before the output of the one before them came, up to
    /// [`MAX_RUN_AHEAD`]. No value changes a bit of any answer.
    pub run_ahead: usize,
    /// When waiting requests are let in.
    pub batching: Batching,
    /// How prompts are put into steps. Whole ones need `max_num_batched_tokens` of at least
    /// `max_model_len`.
    pub prefill_mode: PrefillMode,
    /// How much of the cache a request holds.
    pub reservation: Reservation,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            max_num_seqs: 8,
            max_num_batched_tokens: 512,
            max_model_len: 2048,
            block_size: 32,
            num_blocks: 1 + 2048 / 32,
            max_prefill_chunk: None,
            enable_prefix_caching: true,
            preemption_mode: PreemptionMode::default(),
            swap_space_bytes: 4 << 30,
            run_ahead: 1,
            batching: Batching::default(),
            prefill_mode: PrefillMode::default(),
            reservation: Reservation::default(),
        }
    }
}

impl SchedulerConfig {
    /// Blocks that hold `num_tokens` tokens.
    pub fn blocks_for(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.block_size)
    }

    /// Most tokens of all steps that are in flight together.
    pub fn max_num_tokens_in_flight(&self) -> usize {
        let steps = self.run_ahead.saturating_add(1);
        self.max_num_batched_tokens.saturating_mul(steps)
    }

    /// Checks every limit.
    ///
    /// # Errors
    /// [`ConfigError`] names the first limit under which nothing could run.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_model_len", self.max_model_len),
            ("max_prefill_chunk", self.max_prefill_chunk.unwrap_or(1)),
        ];
        if let Some(&(name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero { name });
        }
        if self.max_num_batched_tokens > MAX_BATCHED_TOKENS {
            return Err(ConfigError::BatchedTokens(self.max_num_batched_tokens));
        }
        if self.run_ahead > MAX_RUN_AHEAD {
            return Err(ConfigError::RunAhead(self.run_ahead));
        }
        if self.prefill_mode != PrefillMode::Chunked
            && (self.max_num_batched_tokens < self.max_model_len
                || self.max_prefill_chunk.is_some())
        {
            return Err(ConfigError::WholePrompts {
                max_num_batched_tokens: self.max_num_batched_tokens,
                max_model_len: self.max_model_len,
            });
        }
        if !matches!(self.block_size, 16 | 32) {
            return Err(ConfigError::BlockSize(self.block_size));
        }
        if self.num_blocks < 2 || u32::try_from(self.num_blocks).is_err() {
            return Err(ConfigError::NumBlocks(self.num_blocks));
        }
        Ok(())
    }

    /// Checks every limit, also against the model. Sizes computed from limits that pass do not
    /// overflow.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and [`ConfigError::BeyondModel`].
    pub fn validate_for(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        if self.max_model_len > model.max_position_embeddings {
            return Err(ConfigError::BeyondModel {
                max_model_len: self.max_model_len,
                max_position_embeddings: model.max_position_embeddings,
            });
        }
        self.validate()
    }
}

/// A limit under which nothing could run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A count that must not be 0.
    #[error("{name} is 0, so nothing could ever run: give at least 1")]
    Zero {
        /// The limit.
        name: &'static str,
    },
    /// More tokens than a grid counts.
    #[error(
        "max_num_batched_tokens is {0}, but a step has {MAX_BATCHED_TOKENS} tokens at most: lower it"
    )]
    BatchedTokens(usize),
    /// More steps in flight than anything gains by.
    #[error("run_ahead is {0}, but is {MAX_RUN_AHEAD} at most: lower it")]
    RunAhead(usize),
    /// Prompts that are computed whole, in steps that do not hold them.
    #[error(
        "prompts of up to {max_model_len} tokens are computed whole, but a step has \
         {max_num_batched_tokens} at most: raise max_num_batched_tokens, and give no max_prefill_chunk"
    )]
    WholePrompts {
        /// Most tokens of a step.
        max_num_batched_tokens: usize,
        /// Longest sequence.
        max_model_len: usize,
    },
    /// Kernels know two page sizes.
    #[error("block_size is {0}, but KV pages hold 16 or 32 tokens")]
    BlockSize(usize),
    /// Block 0 is the null block, so at least 2 are needed; ids are 32 bits wide.
    #[error("num_blocks is {0}, but must be 2 to 2³²−1 (block 0 is reserved)")]
    NumBlocks(usize),
    /// Positions the model was not made for.
    #[error(
        "max_model_len is {max_model_len}, but the model was made for {max_position_embeddings} \
         positions: lower max_model_len"
    )]
    BeyondModel {
        /// The limit asked for.
        max_model_len: usize,
        /// The model's.
        max_position_embeddings: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_checked() {
        let ok = SchedulerConfig::default();
        assert_eq!(ok.validate(), Ok(()));
        let zero = SchedulerConfig {
            max_prefill_chunk: Some(0),
            ..ok.clone()
        };
        assert_eq!(
            zero.validate(),
            Err(ConfigError::Zero {
                name: "max_prefill_chunk"
            })
        );
        let step = SchedulerConfig {
            max_num_batched_tokens: 65536,
            ..ok.clone()
        };
        assert_eq!(step.validate(), Err(ConfigError::BatchedTokens(65536)));
        let far = SchedulerConfig {
            run_ahead: 4,
            ..ok.clone()
        };
        assert_eq!(far.validate(), Err(ConfigError::RunAhead(4)));
        let page = SchedulerConfig {
            block_size: 24,
            ..ok.clone()
        };
        assert_eq!(page.validate(), Err(ConfigError::BlockSize(24)));
        let pool = SchedulerConfig {
            num_blocks: 1,
            ..ok
        };
        assert_eq!(pool.validate(), Err(ConfigError::NumBlocks(1)));
    }
}
