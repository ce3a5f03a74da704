//! What a step brought one answer. Knows no engine and no text.

use super::metrics::RequestMetrics;
use crate::sched::RequestError;
use crate::types::{FinishReason, RequestId, StopReason, TokenId, TokenLogprobs};

/// What a step brought one request.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOutput {
    /// Which.
    pub request_id: RequestId,
    /// Which of its `n` answers.
    pub index: usize,
    /// Tokens it gained, a stop id excluded.
    pub token_ids: Vec<TokenId>,
    /// One for each of `token_ids`, where asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// The next prompt log-probabilities, where asked for, in order from the second prompt token.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The embedding it asked for; it then ends with it.
    pub embedding: Option<Vec<f32>>,
    /// Prompt tokens it did not have to compute, because an earlier request had.
    pub num_cached_tokens: usize,
    /// This answer is over: ended, or failed by itself.
    pub finished: Option<Result<FinishReason, RequestError>>,
    /// What ended it, where that was asked for.
    pub stop_reason: Option<StopReason>,
    /// Its times so far.
    pub metrics: RequestMetrics,
}

impl EngineOutput {
    /// The answer ends here, whatever was said before.
    pub(super) fn stop_at(&mut self, reason: StopReason) {
        self.finished = Some(Ok(FinishReason::Stop));
        self.stop_reason = Some(reason);
    }

    /// Whether it says more than that time has passed.
    pub(super) fn has_news(&self) -> bool {
        self.finished.is_some() || !self.token_ids.is_empty() || !self.prompt_logprobs.is_empty()
    }
}
