//! The items of a request to `/v1/responses`: messages, thoughts, calls and what came of them, as the messages of the
//! chat that they are.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::refusal::{Below, Refusal};

/// The messages, the instructions before them.
///
/// # Errors
/// What is no item, or one that has no like among a chat's messages.
pub(super) fn messages(fields: &Fields<'_>) -> Result<Vec<Value>, Refusal> {
    let mut messages = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    match fields.get("input") {
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let item = item.as_object();
                let item = item.ok_or_else(|| Below::new("", "must be an object"));
                item.and_then(|item| put_item(item, &mut messages))
                    .map_err(|wrong| wrong.of_item("input", index))?;
            }
        }
        _ => {
            let must = "must be a string or a list of items";
            return Err(Refusal::of("input", must));
        }
    }
    Ok(messages)
}

/// Adds an item to the messages, or to the last of them where it is a part of that.
fn put_item(item: &Map<String, Value>, messages: &mut Vec<Value>) -> Result<(), Below> {
    let text = |name: &str| {
        let text = item.get(name).and_then(Value::as_str);
        text.ok_or_else(|| Below::new(format!(".{name}"), "must be a string"))
    };
    match item.get("type").and_then(Value::as_str) {
        None | Some("message") => {
            let role = text("role")?;
            // Here, as messages stand elsewhere than items.
            if !["user", "assistant", "system", "developer"].contains(&role) {
                let must = "must be user, assistant, system or developer";
                return Err(Below::new(".role", must));
            }
            let content = content(item.get("content").unwrap_or(&Value::Null), ".content")?;
            // Thoughts before it are its own.
            match messages.last_mut().filter(|last| is_begun(last)) {
                Some(last) if role == "assistant" => last["content"] = json!(content),
                _ => messages.push(json!({"role": role, "content": content})),
            }
        }
        Some("function_call") => {
            let arguments = text("arguments")?.trim();
            let is_object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
            if !is_object && !arguments.is_empty() {
                return Err(Below::new(".arguments", "must be JSON of an object"));
            }
            let call = json!({
                "id": text("call_id")?,
                "type": "function",
                "function": {"name": text("name")?, "arguments": text("arguments")?},
            });
            let is_answer = messages
                .last()
                .is_some_and(|last| last["role"] == "assistant");
            if !is_answer {
                messages.push(json!({"role": "assistant", "content": ""}));
            }
            if let Some(last) = messages.last_mut() {
                match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => last["tool_calls"] = json!([call]),
                }
            }
        }
        Some("function_call_output") => {
            let output = content(item.get("output").unwrap_or(&Value::Null), ".output")?;
            messages.push(json!({
                "role": "tool", "tool_call_id": text("call_id")?, "content": output,
            }));
        }
        Some("reasoning") => {
            let parts = ["content", "summary"].map(|name| item.get(name));
            let parts = parts
                .into_iter()
                .flatten()
                .find(|parts| parts.as_array().is_some_and(|parts| !parts.is_empty()));
            if let Some(parts) = parts {
                let thoughts = content(parts, ".content")?;
                messages.push(
                    json!({"role": "assistant", "content": "", "reasoning_content": thoughts}),
                );
            }
        }
        Some(other) => return Err(Below::new(".type", format!("{other:?} is not served"))),
    }
    Ok(())
}

/// Whether a message holds thoughts alone as yet.
fn is_begun(message: &Value) -> bool {
    message.get("reasoning_content").is_some()
        && message["content"] == ""
        && message.get("tool_calls").is_none()
}

/// A text, or the texts of parts.
fn content(value: &Value, name: &str) -> Result<String, Below> {
    const TEXTS: [&str; 6] = [
        "input_text",
        "output_text",
        "text",
        "summary_text",
        "reasoning_text",
        "refusal",
    ];
    let part = |part: &Value| -> Result<String, Below> {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or("");
        let text = part.get("text").or_else(|| part.get("refusal"));
        let text = text
            .and_then(Value::as_str)
            .filter(|_| TEXTS.contains(&kind));
        let text = text.map(str::to_owned);
        text.ok_or_else(|| Below::new(name, "has a part that is no text").code("not_text"))
    };
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => Err(Below::new(name, "must be a string or a list of parts")),
    }
}
