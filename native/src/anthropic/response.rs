//! Answers of `/v1/messages`: the whole message, the events of a stream, errors and counts. Knows no
//! transport.

use serde_json::{Value, json};
use twoclock_core::chat::{AnswerEvent, AnswerFormat, AnswerParts};
use twoclock_core::types::{FinishReason, StopReason};

use crate::openai::{Usage, tool_calls};

/// How an answer ended, and what it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// Why.
    pub reason: Option<FinishReason>,
    /// What ended it, where that was asked for.
    pub stop: Option<StopReason>,
    /// Its tokens.
    pub usage: Usage,
}

impl Ended {
    /// `stop_reason` and `stop_sequence` after so many calls.
    fn as_json(&self, num_calls: usize) -> Value {
        let (reason, sequence) = match (&self.reason, &self.stop) {
            (Some(FinishReason::Length), _) => ("max_tokens", None),
            (Some(FinishReason::Stop), _) if num_calls > 0 => ("tool_use", None),
            (Some(FinishReason::Stop), Some(StopReason::Text(text))) => {
                ("stop_sequence", Some(text))
            }
            (Some(FinishReason::Stop), _) => ("end_turn", None),
            (Some(FinishReason::Abort) | None, _) => ("pause_turn", None),
        };
        json!({"stop_reason": reason, "stop_sequence": sequence})
    }
}

/// Tokens as this protocol counts them: those of the prompt that an earlier request had computed stand
/// apart from the others.
fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    })
}

/// The body of a whole answer; `id` begins with `msg_`.
pub fn message_body(
    id: &str,
    model: &str,
    parts: &AnswerParts,
    format: &AnswerFormat,
    ended: &Ended,
) -> Value {
    let mut content = Vec::new();
    if !parts.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": parts.reasoning, "signature": ""}));
    }
    if !parts.content.is_empty() || (content.is_empty() && parts.tool_calls.is_empty()) {
        content.push(json!({"type": "text", "text": parts.content}));
    }
    for (index, call) in parts.tool_calls.iter().enumerate() {
        let arguments = serde_json::from_str::<Value>(&call.arguments).ok();
        let input = arguments.filter(Value::is_object);
        content.push(json!({
            "type": "tool_use",
            "id": tool_calls::call_id(format, id, 0, index),
            "name": call.name,
            // Cut short, it is no JSON; nothing of it is lost.
            "input": input.unwrap_or_else(|| json!({"INVALID_JSON": call.arguments})),
        }));
    }
    let mut body = frame(id, model, content, ended.usage);
    let end = ended.as_json(parts.tool_calls.len());
    for name in ["stop_reason", "stop_sequence"] {
        body[name] = end[name].clone();
    }
    body
}

fn frame(id: &str, model: &str, content: Vec<Value>, tokens: Usage) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(tokens),
    })
}

/// The body that says how long a prompt is.
pub fn count_body(num_tokens: usize) -> Value {
    json!({"input_tokens": num_tokens})
}

/// The body of an error, also of one inside a stream.
pub fn error_body(status: u16, message: &str, request_id: Option<&str>) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    };
    json!({
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    })
}

/// A block that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Thinking,
    Text,
    Call,
}

/// Makes the events of one streamed answer, in their order.
#[derive(Clone, Debug)]
pub struct MessageStream {
    id: String,
    model: String,
    format: AnswerFormat,
    open: Option<Open>,
    num_blocks: usize,
    num_calls: usize,
}

impl MessageStream {
    /// An answer not yet begun.
    pub fn new(id: &str, model: &str, format: AnswerFormat) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            format,
            open: None,
            num_blocks: 0,
            num_calls: 0,
        }
    }

    /// The first event, when it is known what the prompt takes.
    pub fn begin(&self, tokens: Usage) -> Vec<Value> {
        let message = frame(&self.id, &self.model, Vec::new(), tokens);
        vec![json!({"type": "message_start", "message": message})]
    }

    /// What more of the answer says.
    pub fn extend(&mut self, gained: impl IntoIterator<Item = AnswerEvent>) -> Vec<Value> {
        let mut events = Vec::new();
        for gained in gained {
            let delta = match gained {
                AnswerEvent::Content(text) => {
                    let block = json!({"type": "text", "text": ""});
                    self.open(Open::Text, block, &mut events);
                    json!({"type": "text_delta", "text": text})
                }
                AnswerEvent::Reasoning(text) => {
                    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                    self.open(Open::Thinking, block, &mut events);
                    json!({"type": "thinking_delta", "thinking": text})
                }
                AnswerEvent::ToolCallBegun { index, name } => {
                    self.close(&mut events);
                    self.num_calls += 1;
                    let id = tool_calls::call_id(&self.format, &self.id, 0, index);
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                    self.open(Open::Call, block, &mut events);
                    continue;
                }
                AnswerEvent::Arguments { text, .. } => {
                    json!({"type": "input_json_delta", "partial_json": text})
                }
                AnswerEvent::ToolCallEnded { .. } => {
                    self.close(&mut events);
                    continue;
                }
            };
            let index = self.num_blocks.saturating_sub(1);
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events
    }

    /// The last events of an answer that has ended.
    pub fn end(&mut self, ended: &Ended) -> Vec<Value> {
        let mut events = Vec::new();
        self.close(&mut events);
        events.push(json!({
            "type": "message_delta",
            "delta": ended.as_json(self.num_calls),
            "usage": usage(ended.usage),
        }));
        events.push(json!({"type": "message_stop"}));
        events
    }

    /// Makes sure that a block of this kind is open.
    fn open(&mut self, kind: Open, block: Value, events: &mut Vec<Value>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(events);
        self.open = Some(kind);
        let index = self.num_blocks;
        self.num_blocks += 1;
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
    }

    fn close(&mut self, events: &mut Vec<Value>) {
        if self.open.take().is_some() {
            let index = self.num_blocks.saturating_sub(1);
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use twoclock_core::chat::{
        AnswerSplitter, OfferedTools, Reasoning, ReasoningStyle, Tool, ToolStyle,
    };

    const TEXT: &str = "<think>hm</think>Hi \
        <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>";

    fn format() -> AnswerFormat {
        AnswerFormat {
            reasoning: Some(Reasoning {
                style: ReasoningStyle::Think,
                is_open: false,
            }),
            tools: Some(OfferedTools {
                style: ToolStyle::Hermes,
                tools: Arc::from([Tool {
                    name: "add".to_owned(),
                    parameters: None,
                }]),
                parallel: true,
            }),
        }
    }

    fn ended(reason: FinishReason, stop: Option<&str>) -> Ended {
        Ended {
            reason: Some(reason),
            stop: stop.map(|text| StopReason::Text(text.to_owned())),
            usage: Usage {
                prompt_tokens: 9,
                completion_tokens: 5,
                cached_tokens: 4,
            },
        }
    }

    fn body(text: &str, ended: &Ended) -> Value {
        message_body(
            "msg_1",
            "m",
            &AnswerParts::of(&format(), text),
            &format(),
            ended,
        )
    }

    #[test]
    fn a_whole_answer_has_its_blocks_and_its_end() {
        let whole = body(TEXT, &ended(FinishReason::Stop, None));
        let id = whole["content"][2]["id"].clone();
        assert_eq!(
            whole,
            json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "Hi"},
                    {"type": "tool_use", "id": id, "name": "add", "input": {"a": 1}},
                ],
                "stop_reason": "tool_use", "stop_sequence": null,
                "usage": {"input_tokens": 5, "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 4, "output_tokens": 5},
            })
        );
        let stopped = body("Hi", &ended(FinishReason::Stop, Some("END")));
        assert_eq!(
            (&stopped["stop_reason"], &stopped["stop_sequence"]),
            (&json!("stop_sequence"), &json!("END"))
        );
        assert_eq!(
            body("Hi", &ended(FinishReason::Stop, None))["stop_reason"],
            "end_turn"
        );
        let cut = body(&TEXT[..TEXT.len() - 14], &ended(FinishReason::Length, None));
        assert_eq!(cut["stop_reason"], "max_tokens");
        assert_eq!(
            cut["content"][2]["input"],
            json!({"INVALID_JSON": "{\"a\":1"})
        );
        assert_eq!(
            body("", &ended(FinishReason::Stop, None))["content"],
            json!([{"type": "text", "text": ""}])
        );
    }

    #[test]
    fn a_stream_says_the_same() {
        let mut stream = MessageStream::new("msg_1", "m", format());
        let mut splitter = AnswerSplitter::new(format());
        let mut events = stream.begin(Usage::default());
        for c in TEXT.chars() {
            events.extend(stream.extend(splitter.push(&c.to_string())));
        }
        events.extend(stream.extend(splitter.finish()));
        events.extend(stream.end(&ended(FinishReason::Stop, None)));
        let whole = body(TEXT, &ended(FinishReason::Stop, None));
        let mut blocks: Vec<Value> = Vec::new();
        let mut json_text = String::new();
        for event in &events {
            let at = event["index"].as_u64().unwrap_or(0) as usize;
            let delta = &event["delta"];
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    assert_eq!(at, blocks.len());
                    blocks.push(event["content_block"].clone());
                }
                "content_block_delta" => match delta["type"].as_str().unwrap() {
                    "input_json_delta" => json_text += delta["partial_json"].as_str().unwrap(),
                    kind => {
                        let name = kind.strip_suffix("_delta").unwrap();
                        let grown = [&blocks[at][name], &delta[name]].map(|t| t.as_str().unwrap());
                        blocks[at][name] = json!(grown.concat());
                    }
                },
                "content_block_stop" if blocks[at]["type"] == "tool_use" => {
                    blocks[at]["input"] = serde_json::from_str(&json_text).unwrap();
                }
                _ => {}
            }
        }
        assert_eq!(json!(blocks), whole["content"]);
        let kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
        assert_eq!(
            (kinds[0], kinds[1]),
            ("message_start", "content_block_start")
        );
        assert_eq!(
            &kinds[kinds.len() - 3..],
            ["content_block_stop", "message_delta", "message_stop"]
        );
        let delta = &events[events.len() - 2];
        assert_eq!(
            delta["delta"],
            json!({"stop_reason": "tool_use", "stop_sequence": null})
        );
        assert_eq!(delta["usage"]["output_tokens"], 5);
    }

    #[test]
    fn errors_are_told_by_kind() {
        let of = |status| error_body(status, "m", Some("req_1"))["error"]["type"].clone();
        let kinds = [400, 401, 404, 413, 422, 429, 500, 503].map(of);
        assert_eq!(
            kinds,
            [
                "invalid_request_error",
                "authentication_error",
                "not_found_error",
                "request_too_large",
                "invalid_request_error",
                "rate_limit_error",
                "api_error",
                "overloaded_error",
            ]
            .map(Value::from)
        );
        assert_eq!(count_body(3), json!({"input_tokens": 3}));
    }
}
