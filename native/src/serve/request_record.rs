//! What is known of a request: what was asked, what it took, how it ended. All who answer it add to it. Never what
//! was said. Knows neither the log nor a collector of spans.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::Request;
use twoclock_core::engine::EngineOutput;
use twoclock_core::types::{FinishReason, SamplingParams};

use super::api_error::ApiError;
use super::auth::Sender;

/// What is known of one request, for all who answer it.
#[derive(Clone, Debug, Default)]
pub struct RequestRecord(Arc<Mutex<Facts>>);

/// What was asked of an engine.
#[derive(Debug)]
pub struct AskedOf {
    /// The answer's name; empty where it has none.
    pub answer_id: String,
    /// Tokens of all prompts.
    pub num_prompt_tokens: usize,
    /// Whether the answer comes piece by piece.
    pub is_streamed: bool,
    /// How answers are drawn, where they are.
    pub sampling: Option<Sampling>,
}

/// How answers are drawn, as far as it is told.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// As asked for, or recommended.
    pub temperature: f32,
    /// As asked for, or recommended.
    pub top_p: f32,
    /// Answers to each prompt.
    pub n: usize,
}

impl From<&SamplingParams> for Sampling {
    fn from(params: &SamplingParams) -> Self {
        Self {
            max_tokens: params.max_tokens,
            temperature: params.temperature,
            top_p: params.top_p,
            n: params.n,
        }
    }
}

/// What is known so far.
#[derive(Debug)]
pub struct Facts {
    /// When its head was there.
    pub began: Instant,
    /// Whom it is from, once its host and key are right.
    pub sender: Option<Sender>,
    /// The model that it names, or the only one.
    pub model: Option<String>,
    /// How long it waited for that to be loaded, or for room, if it did.
    pub load: Option<Duration>,
    /// When it began to, while it does.
    waits_since: Option<Instant>,
    /// What was asked, once an engine has it.
    pub asked: Option<AskedOf>,
    /// An engine has it, and its answer is not whole.
    pub is_under_way: bool,
    /// Of each prompt that has begun, tokens that an earlier request had computed.
    cached: Vec<usize>,
    /// Tokens that were drawn.
    pub num_output_tokens: usize,
    /// Times that answers gave their blocks to others and had to come back, of those that ended.
    pub num_preemptions: usize,
    /// How long the first answer to begin waited for its first step.
    pub queue: Option<Duration>,
    /// From the request's head to the first token of any answer.
    pub ttft: Option<Duration>,
    /// Why each answer ended that did.
    pub reasons: Vec<FinishReason>,
    /// What ended it in place of its end.
    pub error: Option<ApiError>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            sender: None,
            model: None,
            load: None,
            waits_since: None,
            asked: None,
            is_under_way: false,
            cached: Vec::new(),
            num_output_tokens: 0,
            num_preemptions: 0,
            queue: None,
            ttft: None,
            reasons: Vec::new(),
            error: None,
        }
    }
}

impl RequestRecord {
    /// That of a request on its way.
    pub fn of(request: &Request) -> Self {
        let record = request.extensions().get::<Self>();
        record.cloned().unwrap_or_default()
    }

    /// What is known so far.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is known, of a request that is over: what comes behind is lost.
    pub fn take(&self) -> Facts {
        let mut facts = std::mem::take(&mut *self.facts());
        facts.end_wait();
        facts
    }

    /// It is let in.
    pub fn admit(&self, sender: Sender) {
        self.facts().sender = Some(sender);
    }

    /// It is for this model, which there is.
    pub fn named(&self, model: &str) {
        self.facts().model = Some(model.to_owned());
    }

    /// It waits for its model.
    pub fn waits_for_model(&self) {
        self.facts().waits_since.get_or_insert_with(Instant::now);
    }

    /// That has come, or does not.
    pub fn waited_for_model(&self) {
        self.facts().end_wait();
    }

    /// An engine has so many prompts of it.
    pub fn asked(&self, asked: AskedOf, num_prompts: usize) {
        let mut facts = self.facts();
        facts.asked = Some(asked);
        facts.is_under_way = true;
        facts.cached = vec![0; num_prompts];
    }

    /// What an answer to the prompt at this place gained.
    pub fn gained(&self, prompt: usize, output: &EngineOutput) {
        let mut facts = self.facts();
        if facts.queue.is_none() {
            facts.queue = output.metrics.queue();
        }
        // The first token may end it, and is then no part of it.
        let has_ended = output.finished == Some(Ok(FinishReason::Stop));
        let has_token = !output.token_ids.is_empty() || has_ended && output.embedding.is_none();
        if facts.ttft.is_none() && has_token {
            facts.ttft = Some(facts.began.elapsed());
        }
        // Further answers to a prompt find what the first one computed.
        if output.index == 0
            && let Some(cached) = facts.cached.get_mut(prompt)
        {
            *cached = output.num_cached_tokens;
        }
        facts.num_output_tokens += output.token_ids.len();
        if let Some(finished) = &output.finished {
            facts.num_preemptions += output.metrics.num_preemptions;
            facts.reasons.extend(finished.as_ref().ok());
        }
    }

    /// All is answered, or nothing more, for this reason.
    pub fn ended(&self, error: Option<&ApiError>) {
        let mut facts = self.facts();
        facts.is_under_way = false;
        facts.error = error.cloned();
    }
}

impl Facts {
    fn end_wait(&mut self) {
        let waited = self.waits_since.take().map(|since| since.elapsed());
        self.load = waited.or(self.load);
    }

    /// Why its answers ended, each reason once.
    pub fn finish_reason(&self) -> String {
        let mut words: Vec<&str> = Vec::new();
        for word in self.reasons.iter().map(|reason| reason.as_str()) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words.join(",")
    }

    /// Tokens of all prompts that earlier requests had computed.
    pub fn num_cached_tokens(&self) -> usize {
        self.cached.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_no_more_in_use() {
        let record = RequestRecord::default();
        record.waits_for_model();
        let shared = record.clone();
        let ann = Sender::Owner("ann".into());
        shared.admit(ann.clone());
        let began = record.facts().began;
        let facts = record.take();
        // Who still answers does not wait, and changes nothing of it.
        shared.ended(Some(&ApiError::timed_out()));
        assert!(
            facts.sender == Some(ann) && facts.began == began,
            "{facts:?}"
        );
        // Also how long it waited in vain.
        assert!(facts.load.is_some());
        assert_eq!(facts.error, None);
        assert_eq!(record.facts().sender, None);
    }
}
