//! The bodies that answer: OpenAI's chat completion and text completion, made while they are written. Knows tokens only
//! to spell them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use twoclock_core::chat::{AnswerFormat, AnswerParts};
use twoclock_core::engine::TextCompletion;
use twoclock_core::text::Tokenizer;

use super::each::Each;
use super::logprobs::{self, Scored};
use super::request::Endpoint;
use super::text_offset::{self, TextOffset};
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

/// What belongs to a whole answer. It is written as the body.
#[derive(Clone, Copy)]
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
    /// choices, else in each choice.
    pub scores_prompt: bool,
    /// What answers to each prompt say first, where its log-probabilities are a part of theirs.
    pub scored_echoes: &'a [String],
    /// What an answer may be made of.
    pub format: &'a AnswerFormat,
    /// Spells tokens.
    pub tokenizer: &'a Tokenizer,
}

impl Answered<'_> {
    /// What the answers to a prompt say first, of which this is the first.
    fn scored_echo(&self, first: usize) -> Option<&str> {
        let n = self.choices.len().checked_div(self.scored_echoes.len())?;
        let echo = self.scored_echoes.get(first.checked_div(n)?);
        echo.map(String::as_str)
    }
}

impl Serialize for Answered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion",
            Endpoint::Completions => "text_completion",
        };
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("id", self.id)?;
        body.serialize_entry("object", object)?;
        body.serialize_entry("created", &self.created)?;
        body.serialize_entry("model", self.model)?;
        let places = || 0..self.choices.len();
        let of_answer = self;
        let choices = Each(|| places().map(|index| Placed { of_answer, index }));
        body.serialize_entry("choices", &choices)?;
        body.serialize_entry("usage", &self.usage.as_json())?;
        if self.endpoint == Endpoint::Chat {
            let first = self.choices.first().filter(|_| self.scores_prompt);
            let scores =
                first.map(|choice| logprobs::of_prompt(&choice.completion, self.tokenizer));
            body.serialize_entry("prompt_logprobs", &scores)?;
        }
        body.end()
    }
}

/// A choice of an answer.
struct Placed<'a> {
    of_answer: &'a Answered<'a>,
    index: usize,
}

impl Serialize for Placed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { of_answer, index } = *self;
        let Answered {
            endpoint,
            choices,
            tokenizer,
            ..
        } = *of_answer;
        let choice = &choices[index];
        let completion = &choice.completion;
        let mut value = serializer.serialize_map(None)?;
        value.serialize_entry("index", &index)?;
        let mut num_calls = 0;
        match endpoint {
            Endpoint::Chat => {
                let parts = AnswerParts::of(of_answer.format, &choice.text);
                num_calls = parts.tool_calls.len();
                let message = tool_calls::message(&parts, of_answer.format, of_answer.id, index);
                value.serialize_entry("message", &message)?;
            }
            Endpoint::Completions => value.serialize_entry("text", &choice.text)?,
        }
        // The prompt is scored once, for the first of its answers.
        let first = index.saturating_sub(completion.index);
        let of_prompt = &choices[first].completion;
        let mut scored: Vec<Scored<'_>> = Vec::new();
        let mut offsets = Vec::new();
        let mut next = TextOffset::behind("");
        if let Some(echo) = of_answer.scored_echo(first) {
            let ids = &of_prompt.prompt_token_ids;
            scored.extend(logprobs::echoed(ids, &of_prompt.prompt_logprobs));
            offsets = text_offset::of_prompt(echo, &ids[..scored.len()], tokenizer);
            next = TextOffset::behind(echo);
        }
        let ids = completion.token_ids.iter().copied();
        scored.extend(ids.zip(completion.logprobs.iter().map(Some)));
        match (endpoint, scored.is_empty()) {
            (_, true) => value.serialize_entry("logprobs", &())?,
            (Endpoint::Chat, _) => {
                value.serialize_entry("logprobs", &logprobs::chat(&scored, tokenizer))?;
            }
            (Endpoint::Completions, _) => {
                let own = scored[offsets.len()..].iter();
                offsets.extend(own.map(|(id, _)| next.pass(*id, tokenizer)));
                let logprobs = logprobs::completion(&scored, &offsets, tokenizer);
                value.serialize_entry("logprobs", &logprobs)?;
            }
        }
        if endpoint == Endpoint::Completions {
            let scores = of_answer
                .scores_prompt
                .then(|| logprobs::of_prompt(of_prompt, tokenizer));
            value.serialize_entry("prompt_logprobs", &scores)?;
        }
        let reason = completion.finish_reason;
        let reason = reason.map(|reason| tool_calls::finish_reason(reason.as_str(), num_calls));
        value.serialize_entry("finish_reason", &reason)?;
        let stop = completion.stop_reason.as_ref().map(stop_reason_as_json);
        value.serialize_entry("stop_reason", &stop)?;
        value.end()
    }
}
