//! The bodies that answer: OpenAI's chat completion and text completion. Knows tokens only to spell them.

use serde_json::{Map, Value, json};
use twoclock_core::chat::{AnswerFormat, AnswerParts};
use twoclock_core::engine::TextCompletion;
use twoclock_core::text::Tokenizer;

use super::logprobs::{self, Scored};
use super::request::Endpoint;
use super::tool_calls;
use crate::answer::stop_reason_as_json;

/// One answer.
pub type Choice = TextCompletion;

/// Tokens of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of its prompts.
    pub prompt_tokens: usize,
    /// Of its answers.
    pub completion_tokens: usize,
    /// Of its prompts, those that an earlier request had computed.
    pub cached_tokens: usize,
}

impl Usage {
    /// As OpenAI writes it.
    pub fn as_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        })
    }
}

/// What belongs to a whole answer.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// For what.
    pub endpoint: Endpoint,
    /// The answer's name.
    pub id: &'a str,
    /// When, seconds of the epoch.
    pub created: u64,
    /// Whose.
    pub model: &'a str,
    /// Of each prompt its answers, one prompt after the other; echoes are a part of their texts.
    pub choices: &'a [Choice],
    /// What they took.
    pub usage: Usage,
    /// The prompt's log-probabilities were asked for, in vLLM's form and places: of a chat beside its
    /// choices, else in the first choice of each prompt.
    pub scores_prompt: bool,
    /// Answers say their prompt first, and its log-probabilities are a part of theirs.
    pub scores_echo: bool,
    /// What an answer may be made of.
    pub format: &'a AnswerFormat,
}

impl Answered<'_> {
    /// The body.
    pub fn body(&self, tokenizer: &Tokenizer) -> Value {
        let first = self.choices.first().filter(|_| self.scores_prompt);
        let of_chat = first.map(|choice| logprobs::of_prompt(&choice.completion, tokenizer));
        let places = 0..self.choices.len();
        let choices: Vec<Value> = places.map(|index| self.choice(index, tokenizer)).collect();
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion",
            Endpoint::Completions => "text_completion",
        };
        let mut body = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "usage": self.usage.as_json(),
        });
        if self.endpoint == Endpoint::Chat {
            body["prompt_logprobs"] = json!(of_chat);
        }
        body
    }

    fn choice(&self, index: usize, tokenizer: &Tokenizer) -> Value {
        let choice = &self.choices[index];
        let completion = &choice.completion;
        let mut value = Map::new();
        value.insert("index".into(), json!(index));
        let mut num_calls = 0;
        match self.endpoint {
            Endpoint::Chat => {
                let parts = AnswerParts::of(self.format, &choice.text);
                num_calls = parts.tool_calls.len();
                let message = tool_calls::message(&parts, self.format, self.id, index);
                value.insert("message".into(), message);
            }
            Endpoint::Completions => {
                value.insert("text".into(), json!(choice.text));
            }
        }
        let mut scored: Vec<Scored<'_>> = Vec::new();
        if self.scores_echo {
            // The prompt is scored once, for the first of its answers.
            let first = &self.choices[index.saturating_sub(completion.index)].completion;
            scored.extend(logprobs::echoed(
                &first.prompt_token_ids,
                &first.prompt_logprobs,
            ));
        }
        let ids = completion.token_ids.iter().copied();
        scored.extend(ids.zip(completion.logprobs.iter().map(Some)));
        let logprobs = match (self.endpoint, scored.is_empty()) {
            (_, true) => Value::Null,
            (Endpoint::Chat, _) => logprobs::chat(&scored, tokenizer),
            (Endpoint::Completions, _) => logprobs::completion(&scored, &mut 0, tokenizer),
        };
        value.insert("logprobs".into(), logprobs);
        if self.endpoint == Endpoint::Completions {
            let scores = (self.scores_prompt && completion.index == 0)
                .then(|| logprobs::of_prompt(completion, tokenizer));
            value.insert("prompt_logprobs".into(), json!(scores));
        }
        let reason = completion.finish_reason;
        let reason = reason.map(|reason| tool_calls::finish_reason(reason.as_str(), num_calls));
        value.insert("finish_reason".into(), json!(reason));
        let stop = completion.stop_reason.as_ref().map(stop_reason_as_json);
        value.insert("stop_reason".into(), json!(stop));
        Value::Object(value)
    }
}
