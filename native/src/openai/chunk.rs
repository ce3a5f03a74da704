//! The pieces of an answer that is streamed: OpenAI's `chat.completion.chunk`, and the same for
//! completions. Owns what was said of each choice so far; knows no transport.

use serde_json::{Map, Value, json};
use twoclock_core::chat::{AnswerFormat, AnswerSplitter};
use twoclock_core::engine::RequestOutput;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{TokenId, TokenLogprobs};

use super::logprobs::{self, Scored};
use super::request::Endpoint;
use super::response::Usage;
use super::text_offset::{self, TextOffset};
use super::tool_calls;
use crate::answer::stop_reason_as_json;

/// A choice as it grows.
#[derive(Clone, Debug)]
struct Growing {
    /// Something was said of it.
    begun: bool,
    /// Where in its text its next token stands.
    next: TextOffset,
    /// Tells thoughts and calls from what is said.
    splitter: AnswerSplitter,
}

impl Growing {
    fn new(format: &AnswerFormat) -> Self {
        Self {
            begun: false,
            next: TextOffset::behind(""),
            splitter: AnswerSplitter::new(format.clone()),
        }
    }
}

/// A prompt whose answers say it first.
#[derive(Clone, Debug)]
pub struct Echo {
    /// As it is said.
    pub text: String,
    /// Its tokens.
    pub token_ids: Vec<TokenId>,
    /// They are scored.
    pub is_scored: bool,
    /// What came of their log-probabilities.
    logprobs: Vec<TokenLogprobs>,
}

impl Echo {
    /// A prompt that was not computed yet.
    pub fn new(text: String, token_ids: Vec<TokenId>, is_scored: bool) -> Self {
        Self {
            text,
            token_ids,
            is_scored,
            logprobs: Vec::new(),
        }
    }
}

/// Makes the pieces of one answer.
#[derive(Clone, Debug)]
pub struct Chunks {
    /// For what.
    pub endpoint: Endpoint,
    /// The answer's name.
    pub id: String,
    /// When, seconds of the epoch.
    pub created: u64,
    /// Whose.
    pub model: String,
    /// Answers to a prompt.
    pub n: usize,
    /// Each piece says that what it took is yet to come.
    pub include_usage: bool,
    /// Of each prompt, what its answers say first; empty where they do not.
    pub echoes: Vec<Echo>,
    /// What an answer may be made of.
    pub format: AnswerFormat,
    choices: Vec<Growing>,
    usage: Usage,
}

impl Chunks {
    /// Of the answers to so many prompts, `n` each.
    pub fn new(endpoint: Endpoint, id: String, created: u64, model: String, n: usize) -> Self {
        Self {
            endpoint,
            id,
            created,
            model,
            n,
            include_usage: false,
            echoes: Vec::new(),
            format: AnswerFormat::default(),
            choices: Vec::new(),
            usage: Usage::default(),
        }
    }

    /// What answers to the prompt at this place gained, as pieces of one stream: mostly one, and none where
    /// nothing can be said yet.
    ///
    /// # Errors
    /// The answer failed by itself.
    pub fn pieces(
        &mut self,
        prompt: usize,
        prompt_tokens: usize,
        gained: RequestOutput,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<Value>, RequestError> {
        let RequestOutput { output, mut text } = gained;
        let index = prompt * self.n + output.index;
        while self.choices.len() <= index {
            self.choices.push(Growing::new(&self.format));
        }
        let echo = self.echoes.get_mut(prompt);
        if let Some(echo) = echo {
            echo.logprobs.extend(output.prompt_logprobs);
        }
        let finished = output.finished.transpose()?;
        if output.token_ids.is_empty() && text.is_empty() && finished.is_none() {
            return Ok(Vec::new());
        }
        self.usage.completion_tokens += output.token_ids.len();
        let begins = !std::mem::replace(&mut self.choices[index].begun, true);
        if begins && output.index == 0 {
            self.usage.prompt_tokens += prompt_tokens;
            self.usage.cached_tokens += output.num_cached_tokens;
        }
        let choice = &mut self.choices[index];
        let mut scored: Vec<Scored<'_>> = Vec::new();
        let mut offsets = Vec::new();
        if let Some(echo) = self.echoes.get(prompt).filter(|_| begins) {
            text.insert_str(0, &echo.text);
            if echo.is_scored {
                scored.extend(logprobs::echoed(&echo.token_ids, &echo.logprobs));
                let ids: Vec<_> = scored.iter().map(|(id, _)| *id).collect();
                offsets = text_offset::of_prompt(&echo.text, &ids, tokenizer);
                choice.next = TextOffset::behind(&echo.text);
            }
        }
        let ids = output.token_ids.iter().copied();
        scored.extend(ids.zip(output.logprobs.iter().map(Some)));
        let mut logprobs = match (self.endpoint, scored.is_empty()) {
            (_, true) => Value::Null,
            (Endpoint::Chat, _) => json!(logprobs::chat(&scored, tokenizer)),
            (Endpoint::Completions, _) => {
                let own = scored[offsets.len()..].iter();
                offsets.extend(own.map(|(id, _)| choice.next.pass(*id, tokenizer)));
                json!(logprobs::completion(&scored, &offsets, tokenizer))
            }
        };
        let mut said = Vec::new();
        let mut num_calls = 0;
        match self.endpoint {
            Endpoint::Completions if text.is_empty() => {}
            Endpoint::Completions => said.push(json!(text)),
            Endpoint::Chat => {
                if begins {
                    said.push(json!({"role": "assistant", "content": ""}));
                }
                let mut events = choice.splitter.push(&text);
                if finished.is_some() {
                    events.extend(choice.splitter.finish());
                }
                num_calls = choice.splitter.num_calls();
                let delta = |event| tool_calls::delta(event, &self.format, &self.id, index);
                said.extend(events.iter().filter_map(delta));
            }
        }
        // Where it ends, and where tokens have no text of their own yet, it is said with none.
        if said.is_empty() && (finished.is_some() || !logprobs.is_null()) {
            said.push(match self.endpoint {
                Endpoint::Chat => json!({}),
                Endpoint::Completions => json!(""),
            });
        }
        let reason = finished.map(|reason| tool_calls::finish_reason(reason.as_str(), num_calls));
        let stop = output.stop_reason.as_ref().map(stop_reason_as_json);
        let last = said.len().saturating_sub(1);
        let pieces = said.into_iter().enumerate().map(|(place, said)| {
            let end = match place == last {
                true => [json!(reason), json!(stop)],
                false => [Value::Null, Value::Null],
            };
            // Of all that was gained, with the first that says something of it.
            let is_role = begins && place == 0 && place != last && self.endpoint == Endpoint::Chat;
            let logprobs = match is_role {
                true => Value::Null,
                false => std::mem::take(&mut logprobs),
            };
            self.piece(index, said, logprobs, end)
        });
        Ok(pieces.collect())
    }

    /// The last piece: what all of it took.
    pub fn usage(&self) -> Value {
        let mut whole = self.frame(Vec::new());
        whole["usage"] = self.usage.as_json();
        whole
    }

    fn piece(
        &self,
        index: usize,
        said: Value,
        logprobs: Value,
        [reason, stop]: [Value; 2],
    ) -> Value {
        let mut choice = Map::new();
        choice.insert("index".into(), json!(index));
        let name = match self.endpoint {
            Endpoint::Chat => "delta",
            Endpoint::Completions => "text",
        };
        choice.insert(name.into(), said);
        choice.insert("logprobs".into(), logprobs);
        choice.insert("finish_reason".into(), reason);
        choice.insert("stop_reason".into(), stop);
        let mut whole = self.frame(vec![Value::Object(choice)]);
        if self.include_usage {
            whole["usage"] = Value::Null;
        }
        whole
    }

    fn frame(&self, choices: Vec<Value>) -> Value {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            Endpoint::Completions => "text_completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}
