//! The one answer to a request of protocols that know no others: thoughts, text and calls as they come, and
//! what it took.

use twoclock_core::chat::{AnswerEvent, AnswerFormat, AnswerSplitter};
use twoclock_core::engine::RequestOutput;
use twoclock_core::sched::RequestError;
use twoclock_core::types::{FinishReason, StopReason};

use crate::openai::Usage;

/// An answer as it grows.
#[derive(Debug)]
pub struct OneAnswer {
    splitter: AnswerSplitter,
    /// What it took.
    pub usage: Usage,
    /// Why it ended.
    pub reason: Option<FinishReason>,
    /// What ended it, where that was asked for.
    pub stop: Option<StopReason>,
}

impl OneAnswer {
    /// Of this form, to a prompt of so many tokens.
    pub fn new(format: AnswerFormat, num_prompt_tokens: usize) -> Self {
        Self {
            splitter: AnswerSplitter::new(format),
            usage: Usage {
                prompt_tokens: num_prompt_tokens,
                ..Usage::default()
            },
            reason: None,
            stop: None,
        }
    }

    /// Takes in what it gained.
    ///
    /// # Errors
    /// It failed by itself.
    pub fn take(&mut self, gained: RequestOutput) -> Result<Vec<AnswerEvent>, RequestError> {
        let RequestOutput { output, text } = gained;
        self.usage.completion_tokens += output.token_ids.len();
        self.usage.cached_tokens = output.num_cached_tokens;
        self.stop = output.stop_reason;
        self.reason = output.finished.transpose()?;
        let mut events = self.splitter.push(&text);
        if self.reason.is_some() {
            events.extend(self.splitter.finish());
        }
        Ok(events)
    }
}
