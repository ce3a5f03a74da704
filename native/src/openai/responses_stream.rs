//! Answers of OpenAI's `/v1/responses`: the events of a stream, and the response that they end in, which
//! is the answer where none was asked for. Knows no transport.

use serde_json::{Map, Value, json};
use twoclock_core::chat::{AnswerEvent, AnswerFormat};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{FinishReason, SamplingParams};

use super::echoed::Echoed;
use super::response::Usage;
use super::tool_calls;

/// An item that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Reasoning,
    Message,
    Call,
}

/// Makes the events of one response, in their order.
#[derive(Clone, Debug)]
pub struct ResponseStream {
    /// The response without what it says again and its output.
    frame: Map<String, Value>,
    echoed: Echoed,
    id: String,
    format: AnswerFormat,
    /// Items that are whole, and the one that grows.
    output: Vec<Value>,
    open: Option<Open>,
    /// The text or the arguments of the item that grows.
    grown: String,
    thoughts: String,
    num_events: usize,
}

impl ResponseStream {
    /// A response not yet begun: its name (`resp_…`), when (seconds of the epoch), whose, how it is drawn, and what it
    /// says again of the body that asked for it.
    pub fn new(
        id: &str,
        created_at: u64,
        model: &str,
        drawn: &SamplingParams,
        echoed: Echoed,
        format: AnswerFormat,
    ) -> Self {
        let frame = json!({
            "id": id,
            "object": "response",
            "created_at": created_at,
            "model": model,
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "previous_response_id": null,
            "store": false,
            "temperature": shortest(drawn.temperature),
            "top_p": shortest(drawn.top_p),
            "usage": null,
        });
        Self {
            frame: frame.as_object().cloned().unwrap_or_default(),
            echoed,
            id: id.to_owned(),
            format,
            output: Vec::new(),
            open: None,
            grown: String::new(),
            thoughts: String::new(),
            num_events: 0,
        }
    }

    /// The first events.
    pub fn begin(&mut self) -> Vec<Value> {
        ["response.created", "response.in_progress"]
            .map(|kind| {
                let response = self.response();
                self.event(kind, json!({"response": response}))
            })
            .into()
    }

    /// What more of the answer says.
    pub fn extend(&mut self, gained: impl IntoIterator<Item = AnswerEvent>) -> Vec<Value> {
        let mut events = Vec::new();
        for gained in gained {
            match gained {
                AnswerEvent::Reasoning(text) => self.say(Open::Reasoning, &text, &mut events),
                AnswerEvent::Content(text) => self.say(Open::Message, &text, &mut events),
                AnswerEvent::ToolCallBegun { index, name } => {
                    let call_id = tool_calls::call_id(&self.format, &self.id, 0, index);
                    self.close("completed", &mut events);
                    let item = json!({
                        "id": self.item_id("fc"),
                        "type": "function_call",
                        "status": "in_progress",
                        "call_id": call_id,
                        "name": name,
                        "arguments": "",
                    });
                    self.add(Open::Call, item, &mut events);
                }
                AnswerEvent::Arguments { text, .. } => {
                    self.grown.push_str(&text);
                    let place = self.place(false);
                    let kind = "response.function_call_arguments.delta";
                    events.push(self.event(kind, with(place, "delta", json!(text))));
                }
                AnswerEvent::ToolCallEnded { .. } => {
                    // Whether it is whole is known when the answer goes on or ends.
                }
            }
        }
        events
    }

    /// The last events of an answer that has ended: its items are closed, and the last event holds the
    /// whole response.
    pub fn end(
        &mut self,
        reason: Option<FinishReason>,
        usage: Usage,
        tokenizer: &Tokenizer,
    ) -> Vec<Value> {
        let mut events = Vec::new();
        let status = match reason {
            Some(FinishReason::Stop) => "completed",
            _ => "incomplete",
        };
        self.close(status, &mut events);
        let details = match reason {
            Some(FinishReason::Length) => json!({"reason": "max_output_tokens"}),
            // That it was given up has no name there.
            Some(FinishReason::Stop | FinishReason::Abort) | None => Value::Null,
        };
        let thoughts = tokenizer.encode(&self.thoughts, false, false);
        self.frame.insert("status".into(), json!(status));
        self.frame.insert("incomplete_details".into(), details);
        self.frame.insert(
            "usage".into(),
            json!({
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": thoughts.map_or(0, |ids| ids.len())},
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            }),
        );
        let kind = match status {
            "completed" => "response.completed",
            _ => "response.incomplete",
        };
        let response = self.response();
        events.push(self.event(kind, json!({"response": response})));
        events
    }

    /// The last events of an answer that failed.
    pub fn fail(&mut self, code: &str, message: &str) -> Vec<Value> {
        let mut events = Vec::new();
        self.close("incomplete", &mut events);
        self.frame.insert("status".into(), json!("failed"));
        let error = json!({"code": code, "message": message});
        self.frame.insert("error".into(), error);
        let response = self.response();
        events.push(self.event("response.failed", json!({"response": response})));
        events
    }

    /// The response as it stands.
    pub fn response(&self) -> Value {
        let mut response = self.frame.clone();
        self.echoed.put_into(&mut response);
        response.insert("output".into(), json!(self.output));
        Value::Object(response)
    }

    /// Adds text to the item of this kind that is open, or to a new one.
    fn say(&mut self, kind: Open, text: &str, events: &mut Vec<Value>) {
        if self.open != Some(kind) {
            self.close("completed", events);
            let item = match kind {
                Open::Message => json!({
                    "id": self.item_id("msg"), "type": "message", "status": "in_progress",
                    "role": "assistant", "content": [],
                }),
                _ => json!({
                    "id": self.item_id("rs"), "type": "reasoning", "status": "in_progress",
                    "summary": [], "content": [],
                }),
            };
            self.add(kind, item, events);
            let place = self.place(true);
            let part = with(place, "part", part(kind, ""));
            events.push(self.event("response.content_part.added", part));
        }
        self.grown.push_str(text);
        let mut delta = with(self.place(true), "delta", json!(text));
        let name = match kind {
            Open::Message => {
                delta = with(delta, "logprobs", json!([]));
                "response.output_text.delta"
            }
            _ => {
                self.thoughts.push_str(text);
                "response.reasoning_text.delta"
            }
        };
        events.push(self.event(name, delta));
    }

    fn add(&mut self, kind: Open, item: Value, events: &mut Vec<Value>) {
        self.open = Some(kind);
        self.output.push(item.clone());
        let output_index = self.output.len() - 1;
        let added = json!({"output_index": output_index, "item": item});
        events.push(self.event("response.output_item.added", added));
    }

    /// Ends the item that grows.
    fn close(&mut self, status: &str, events: &mut Vec<Value>) {
        let Some(kind) = self.open.take() else {
            return;
        };
        let text = std::mem::take(&mut self.grown);
        let place = self.place(kind != Open::Call);
        match kind {
            Open::Call => {
                let done = with(place, "arguments", json!(text));
                let name = self.output.last().map(|item| item["name"].clone());
                let done = with(done, "name", json!(name));
                events.push(self.event("response.function_call_arguments.done", done));
            }
            _ => {
                let mut done = with(place.clone(), "text", json!(text));
                let name = match kind {
                    Open::Message => {
                        done = with(done, "logprobs", json!([]));
                        "response.output_text.done"
                    }
                    _ => "response.reasoning_text.done",
                };
                events.push(self.event(name, done));
                let done = with(place, "part", part(kind, &text));
                events.push(self.event("response.content_part.done", done));
            }
        }
        let output_index = self.output.len() - 1;
        let item = &mut self.output[output_index];
        item["status"] = json!(status);
        match kind {
            Open::Call => item["arguments"] = json!(text),
            _ => item["content"] = json!([part(kind, &text)]),
        }
        let done = json!({"output_index": output_index, "item": item.clone()});
        events.push(self.event("response.output_item.done", done));
    }

    /// The name of the next item.
    fn item_id(&self, prefix: &str) -> String {
        let name = self.id.strip_prefix("resp_").unwrap_or(&self.id);
        format!("{prefix}_{name}_{}", self.output.len())
    }

    /// Which item an event is about, and which part of it.
    fn place(&self, has_parts: bool) -> Value {
        let id = self.output.last().map(|item| item["id"].clone());
        let place = json!({"item_id": id, "output_index": self.output.len().saturating_sub(1)});
        match has_parts {
            true => with(place, "content_index", json!(0)),
            false => place,
        }
    }

    fn event(&mut self, kind: &str, rest: Value) -> Value {
        let mut event = Map::new();
        event.insert("type".into(), json!(kind));
        event.insert("sequence_number".into(), json!(self.num_events));
        self.num_events += 1;
        event.extend(rest.as_object().cloned().unwrap_or_default());
        Value::Object(event)
    }
}

/// A number as a person wrote it, without the digits that more precision would add.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn with(mut value: Value, name: &str, field: Value) -> Value {
    value[name] = field;
    value
}

/// The one part of an item that holds text.
fn part(kind: Open, text: &str) -> Value {
    match kind {
        Open::Message => json!({
            "type": "output_text", "text": text, "annotations": [], "logprobs": [],
        }),
        _ => json!({"type": "reasoning_text", "text": text}),
    }
}
