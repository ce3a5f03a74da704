//! The bodies that answer: OpenAI's chat completion, text completion and error. Knows tokens only to
//! spell them.

use serde_json::{Map, Value, json};
use twoclock_core::engine::TextCompletion;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{TokenId, TokenLogprobs};

use super::request::Endpoint;
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
    fn as_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        })
    }
}

/// The body of a whole answer; `created` is in seconds of the epoch. With `scores_prompt` it has the
/// prompt's log-probabilities in vLLM's form and places: of a chat beside its choices, else in the
/// first choice of each prompt.
#[expect(clippy::too_many_arguments, reason = "each is a part of the body")]
pub fn body(
    endpoint: Endpoint,
    id: &str,
    created: u64,
    model: &str,
    choices: &[Choice],
    usage: Usage,
    scores_prompt: bool,
    tokenizer: &Tokenizer,
) -> Value {
    let first = choices.first().filter(|_| scores_prompt);
    let of_chat = first.map(|choice| prompt_logprobs(choice, tokenizer));
    let choices: Vec<Value> = choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            let mut value = Map::new();
            value.insert("index".into(), json!(index));
            match endpoint {
                Endpoint::Chat => {
                    let message = json!({"role": "assistant", "content": choice.text});
                    value.insert("message".into(), message);
                }
                Endpoint::Completions => {
                    value.insert("text".into(), json!(choice.text));
                }
            }
            let completion = &choice.completion;
            let logprobs = match (endpoint, completion.logprobs.is_empty()) {
                (_, true) => Value::Null,
                (Endpoint::Chat, _) => chat_logprobs(choice, tokenizer),
                (Endpoint::Completions, _) => completion_logprobs(choice, tokenizer),
            };
            value.insert("logprobs".into(), logprobs);
            if endpoint == Endpoint::Completions {
                let scored = scores_prompt && completion.index == 0;
                let scores = scored.then(|| prompt_logprobs(choice, tokenizer));
                value.insert("prompt_logprobs".into(), json!(scores));
            }
            let reason = completion.finish_reason.map(|reason| reason.as_str());
            value.insert("finish_reason".into(), json!(reason));
            let stop = completion.stop_reason.as_ref().map(stop_reason_as_json);
            value.insert("stop_reason".into(), json!(stop));
            Value::Object(value)
        })
        .collect();
    let object = match endpoint {
        Endpoint::Chat => "chat.completion",
        Endpoint::Completions => "text_completion",
    };
    let mut body = json!({
        "id": id,
        "object": object,
        "created": created,
        "model": model,
        "choices": choices,
        "usage": usage.as_json(),
    });
    if endpoint == Endpoint::Chat {
        body["prompt_logprobs"] = json!(of_chat);
    }
    body
}

/// The body of an error. A request's own fault is an `invalid_request_error`.
pub fn error_body(status: u16, message: &str, param: Option<&str>) -> Value {
    let kind = match status {
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": param, "code": null}})
}

fn spelled(id: TokenId, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned()
}

fn tokens(choice: &Choice) -> impl Iterator<Item = (TokenId, &TokenLogprobs)> {
    let completion = &choice.completion;
    completion
        .token_ids
        .iter()
        .copied()
        .zip(&completion.logprobs)
}

/// Of each prompt token but the first: its own and the best ones by id. A token's rank is known where
/// it is among those.
fn prompt_logprobs(choice: &Choice, tokenizer: &Tokenizer) -> Value {
    let completion = &choice.completion;
    let scored = completion.prompt_token_ids.iter().skip(1).copied();
    let positions = scored.zip(&completion.prompt_logprobs).map(|(id, scores)| {
        let rank = |id| scores.top.iter().position(|(best, _)| *best == id);
        let best = scores.top.iter().copied().filter(|(best, _)| *best != id);
        let all = std::iter::once((id, scores.logprob)).chain(best);
        let all = all.map(|(id, logprob)| {
            let one = json!({
                "logprob": logprob,
                "rank": rank(id).map(|above| above + 1),
                "decoded_token": spelled(id, tokenizer),
            });
            (id.to_string(), one)
        });
        Value::Object(all.collect())
    });
    std::iter::once(Value::Null).chain(positions).collect()
}

fn chat_logprobs(choice: &Choice, tokenizer: &Tokenizer) -> Value {
    let one = |id: TokenId, logprob: f32| {
        json!({
            "token": spelled(id, tokenizer),
            "logprob": logprob,
            "bytes": tokenizer.token_bytes(id),
        })
    };
    let positions = tokens(choice).map(|(id, logprobs)| {
        let mut position = one(id, logprobs.logprob);
        let top = logprobs.top.iter().map(|&(id, logprob)| one(id, logprob));
        position["top_logprobs"] = top.collect();
        position
    });
    json!({"content": positions.collect::<Vec<_>>()})
}

fn completion_logprobs(choice: &Choice, tokenizer: &Tokenizer) -> Value {
    let texts = tokens(choice).map(|(id, _)| spelled(id, tokenizer));
    let texts: Vec<String> = texts.collect();
    let offsets = texts.iter().scan(0, |offset, text| {
        let before = *offset;
        *offset += text.chars().count();
        Some(before)
    });
    let top = tokens(choice).map(|(_, logprobs)| -> Value {
        let top = logprobs.top.iter();
        let top = top.map(|&(id, logprob)| (spelled(id, tokenizer), json!(logprob)));
        Value::Object(top.collect())
    });
    json!({
        "text_offset": offsets.collect::<Vec<usize>>(),
        "token_logprobs": tokens(choice).map(|(_, l)| l.logprob).collect::<Vec<f32>>(),
        "top_logprobs": top.collect::<Vec<_>>(),
        "tokens": texts,
    })
}
