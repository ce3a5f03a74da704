//! The messages of a request to `/v1/messages`, made of blocks, as a chat has them. Knows nothing of what goes with
//! them.

use serde_json::{Value, json};

use crate::openai::fields::Fields;
use crate::openai::refusal::{Below, Refusal};

/// The messages, what the system is told before them.
///
/// # Errors
/// What has no like among a chat's messages.
pub(super) fn read(fields: &Fields<'_>) -> Result<Vec<Value>, Refusal> {
    let mut messages = Vec::new();
    if let Some(system) = fields.get("system") {
        let text = texts(system).map_err(|wrong| wrong.of("system"))?;
        messages.push(json!({"role": "system", "content": text}));
    }
    let given = fields.list("messages")?.filter(|list| !list.is_empty());
    let given = given.ok_or_else(|| Refusal::of("messages", "must be a list of at least one"))?;
    for (index, message) in given.iter().enumerate() {
        let refuse = |wrong: Below| wrong.of_item("messages", index);
        let content = message.get("content").unwrap_or(&Value::Null);
        match message.get("role").and_then(Value::as_str) {
            Some("user") => put_user(content, &mut messages),
            Some("assistant") => assistant(content).map(|message| messages.push(message)),
            Some("system") => texts(content).map(|text| {
                messages.push(json!({"role": "system", "content": text}));
            }),
            _ => Err(Below::new(".role", "must be user or assistant")),
        }
        .map_err(refuse)?;
    }
    Ok(messages)
}

/// A text, or the texts of blocks.
fn texts(value: &Value) -> Result<String, Below> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let text = |block: &Value| match block.get("type").and_then(Value::as_str) {
                Some("text") => block.get("text")?.as_str().map(str::to_owned),
                _ => None,
            };
            let texts: Option<String> = blocks.iter().map(text).collect();
            texts.ok_or_else(|| Below::new("", "has a block that is no text"))
        }
        _ => Err(Below::new("", "must be a string or a list of text blocks")),
    }
}

/// Results of calls become messages of their own, and stand before what else is said.
fn put_user(content: &Value, messages: &mut Vec<Value>) -> Result<(), Below> {
    let blocks = match content {
        Value::Array(blocks) => blocks.as_slice(),
        text => {
            let text = texts(text).map_err(|wrong| wrong.within(".content"))?;
            messages.push(json!({"role": "user", "content": text}));
            return Ok(());
        }
    };
    let mut said = String::new();
    let mut says = false;
    for (n, block) in blocks.iter().enumerate() {
        let at = |wrong: Below| wrong.within(format!(".content[{n}]"));
        let not_text = |path: &str| at(Below::new(path, "must be a string"));
        match block.get("type").and_then(Value::as_str) {
            Some("text") => {
                let text = block.get("text").and_then(Value::as_str);
                said.push_str(text.ok_or_else(|| not_text(".text"))?);
                says = true;
            }
            Some("tool_result") => {
                let id = block.get("tool_use_id").and_then(Value::as_str);
                let id = id.ok_or_else(|| not_text(".tool_use_id"))?;
                let text = match block.get("content") {
                    None | Some(Value::Null) => String::new(),
                    Some(content) => {
                        texts(content).map_err(|wrong| at(wrong.within(".content")))?
                    }
                };
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            kind => return Err(at(unserved(kind))),
        }
    }
    if says || blocks.is_empty() {
        messages.push(json!({"role": "user", "content": said}));
    }
    Ok(())
}

/// What is said of a block that is none of those that are served.
fn unserved(kind: Option<&str>) -> Below {
    match kind {
        Some(kind) => Below::new(".type", format!("{kind:?} is not served")),
        None => Below::new(".type", "must be a string"),
    }
}

fn assistant(content: &Value) -> Result<Value, Below> {
    let Value::Array(blocks) = content else {
        let text = texts(content).map_err(|wrong| wrong.within(".content"))?;
        return Ok(json!({"role": "assistant", "content": text}));
    };
    let (mut said, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for (n, block) in blocks.iter().enumerate() {
        let at = |wrong: Below| wrong.within(format!(".content[{n}]"));
        let text = |name: &str| {
            let text = block.get(name).and_then(Value::as_str);
            text.ok_or_else(|| at(Below::new(format!(".{name}"), "must be a string")))
        };
        match block.get("type").and_then(Value::as_str) {
            Some("text") => said.push_str(text("text")?),
            Some("thinking") => thoughts.push_str(text("thinking")?),
            // Nobody here can read it, and nobody here wrote it.
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                let input = block.get("input").filter(|input| input.is_object());
                let input = input.ok_or_else(|| at(Below::new(".input", "must be an object")))?;
                calls.push(json!({
                    "id": text("id")?,
                    "type": "function",
                    "function": {"name": text("name")?, "arguments": input},
                }));
            }
            kind => return Err(at(unserved(kind))),
        }
    }
    let mut message = json!({"role": "assistant", "content": said});
    if !thoughts.is_empty() {
        message["reasoning_content"] = json!(thoughts);
    }
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    Ok(message)
}
