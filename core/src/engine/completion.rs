//! A request's whole answer, gathered from what the steps brought. Knows no engine.

use super::core::EngineOutput;
use super::metrics::RequestMetrics;
use crate::sched::RequestError;
use crate::types::{FinishReason, RequestId, StopReason, TokenId, TokenLogprobs};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Whose.
    pub request_id: RequestId,
    /// Which of its `n` answers.
    pub index: usize,
    /// What was asked.
    pub prompt_token_ids: Vec<TokenId>,
    /// The answer, a stop id excluded.
    pub token_ids: Vec<TokenId>,
    /// One for each of `token_ids`, where asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// One for each prompt token after the first, where asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that did not have to be computed, because an earlier request had.
    pub num_cached_tokens: usize,
    /// Why it ended; `None` while it has not.
    pub finish_reason: Option<FinishReason>,
    /// What ended it, where that was asked for: a stop id or a stop string.
    pub stop_reason: Option<StopReason>,
    /// Its times.
    pub metrics: RequestMetrics,
}

impl Completion {
    /// An answer not yet begun.
    pub fn new(
        request_id: RequestId,
        index: usize,
        prompt_token_ids: Vec<TokenId>,
        metrics: RequestMetrics,
    ) -> Self {
        Self {
            request_id,
            index,
            prompt_token_ids,
            token_ids: Vec::new(),
            logprobs: Vec::new(),
            prompt_logprobs: Vec::new(),
            num_cached_tokens: 0,
            finish_reason: None,
            stop_reason: None,
            metrics,
        }
    }

    /// Takes in what a step brought this request.
    ///
    /// # Errors
    /// The request's own failure.
    pub fn take(&mut self, output: EngineOutput) -> Result<(), RequestError> {
        debug_assert_eq!(
            (output.request_id, output.index),
            (self.request_id, self.index),
            "another answer's output"
        );
        self.token_ids.extend(output.token_ids);
        self.logprobs.extend(output.logprobs);
        self.prompt_logprobs.extend(output.prompt_logprobs);
        self.num_cached_tokens = output.num_cached_tokens;
        self.metrics = output.metrics;
        self.stop_reason = output.stop_reason;
        self.finish_reason = output.finished.transpose()?;
        Ok(())
    }
}
