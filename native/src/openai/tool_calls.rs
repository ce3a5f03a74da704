//! Calls of tools in bodies: in the messages of a chat, and in its answers. How a model writes them is the core's.

use serde_json::{Map, Value, json};
use twoclock_core::chat::{AnswerEvent, AnswerFormat, AnswerParts, ToolStyle};

use super::refusal::Below;

/// Writes the arguments of calls in a message as templates expect them: objects, not JSON texts of some.
///
/// # Errors
/// What of a call is no call.
pub fn read_calls(message: &mut Map<String, Value>) -> Result<(), Below> {
    let calls = match message.get_mut("tool_calls") {
        None => return Ok(()),
        Some(Value::Null) => {
            message.remove("tool_calls");
            return Ok(());
        }
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err(Below::new(".tool_calls", "must be a list")),
    };
    for (n, call) in calls.iter_mut().enumerate() {
        let wrong = |path: &str, said: &str| {
            Below::new(path, said).within(format!(".tool_calls[{n}].function"))
        };
        let function = call.get_mut("function").and_then(Value::as_object_mut);
        let function = function.ok_or_else(|| wrong("", "must be an object"))?;
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(wrong(".name", "must be a string"));
        }
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => Some(Map::new()),
            Some(Value::Object(object)) => Some(object.clone()),
            Some(Value::String(text)) if text.trim().is_empty() => Some(Map::new()),
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            Some(_) => None,
        };
        let arguments =
            arguments.ok_or_else(|| wrong(".arguments", "must be JSON of an object"))?;
        function.insert("arguments".to_owned(), Value::Object(arguments));
    }
    Ok(())
}

/// How calls of an answer of this format are named: by the answer's id, the choice and the call.
pub fn call_id(format: &AnswerFormat, answer: &str, choice: usize, index: usize) -> String {
    let style = format.tools.as_ref().map(|tools| tools.style);
    let style = style.unwrap_or(ToolStyle::Hermes);
    style.call_id(&format!("{answer}-{choice}"), index)
}

/// The message that a whole answer is; `answer` is its id.
pub fn message(parts: &AnswerParts, format: &AnswerFormat, answer: &str, choice: usize) -> Value {
    let calls = parts.tool_calls.iter().enumerate().map(|(index, call)| {
        json!({
            "id": call_id(format, answer, choice, index),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        })
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = Map::new();
    message.insert("role".into(), json!("assistant"));
    let says_nothing = parts.content.is_empty() && !calls.is_empty();
    let content = (!says_nothing).then_some(&parts.content);
    message.insert("content".into(), json!(content));
    if !parts.reasoning.is_empty() {
        message.insert("reasoning_content".into(), json!(parts.reasoning));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), Value::Array(calls));
    }
    Value::Object(message)
}

/// The `delta` of a streamed answer that says an event; nothing is said of a call's end.
pub fn delta(
    event: &AnswerEvent,
    format: &AnswerFormat,
    answer: &str,
    choice: usize,
) -> Option<Value> {
    Some(match event {
        AnswerEvent::Content(text) => json!({"content": text}),
        AnswerEvent::Reasoning(text) => json!({"reasoning_content": text}),
        AnswerEvent::ToolCallBegun { index, name } => json!({"tool_calls": [{
            "index": index,
            "id": call_id(format, answer, choice, *index),
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }]}),
        AnswerEvent::Arguments { index, text } => json!({"tool_calls": [{
            "index": index,
            "function": {"arguments": text},
        }]}),
        AnswerEvent::ToolCallEnded { .. } => return None,
    })
}

/// `finish_reason` of an answer that ended for `reason` after so many calls.
pub fn finish_reason(reason: &'static str, num_calls: usize) -> &'static str {
    match reason {
        "stop" if num_calls > 0 => "tool_calls",
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use twoclock_core::chat::{OfferedTools, Tool};

    #[test]
    fn arguments_in_messages_become_objects() {
        let of = |arguments: Value| {
            let call = json!({"id": "x", "function": {"name": "add", "arguments": arguments}});
            let mut message = Map::from_iter([("tool_calls".to_owned(), json!([call]))]);
            let read = read_calls(&mut message);
            read.map(|()| message["tool_calls"][0]["function"]["arguments"].clone())
        };
        assert_eq!(of(json!("{\"a\": [1]}")).unwrap(), json!({"a": [1]}));
        assert_eq!(of(json!({"a": 1})).unwrap(), json!({"a": 1}));
        assert_eq!(of(json!("")).unwrap(), json!({}));
        let refused = of(json!("[1]")).unwrap_err();
        let refused = refused.of("messages[3]").to_string();
        assert!(refused.starts_with("messages[3].tool_calls[0].function.arguments must"));
        assert!(of(json!("{")).is_err());
    }

    #[test]
    fn an_answer_is_said_whole_and_in_pieces() {
        let format = AnswerFormat {
            reasoning: None,
            tools: Some(OfferedTools {
                style: ToolStyle::Hermes,
                tools: Arc::from([Tool {
                    name: "add".to_owned(),
                    parameters: None,
                }]),
                parallel: true,
            }),
        };
        let text = "So:\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";
        let parts = AnswerParts::of(&format, text);
        let whole = message(&parts, &format, "chatcmpl-1", 0);
        let id = whole["tool_calls"][0]["id"].clone();
        assert_eq!(
            whole,
            json!({"role": "assistant", "content": "So:", "tool_calls": [{
                "id": id, "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"},
            }]})
        );
        let mut splitter = twoclock_core::chat::AnswerSplitter::new(format.clone());
        let events = splitter.push(text).into_iter().chain(splitter.finish());
        let deltas: Vec<Value> = events
            .filter_map(|event| delta(&event, &format, "chatcmpl-1", 0))
            .collect();
        assert_eq!(deltas[0], json!({"content": "So:"}));
        let begun = &deltas[1]["tool_calls"][0];
        assert_eq!((&begun["id"], &begun["index"]), (&id, &json!(0)));
        assert_eq!(
            deltas[2]["tool_calls"][0]["function"]["arguments"],
            "{\"a\": 1}"
        );
        assert_eq!(deltas.len(), 3);
        let silent = AnswerParts::of(&format, &text[3..]);
        assert!(message(&silent, &format, "a", 0)["content"].is_null());
        assert_eq!(
            message(&AnswerParts::default(), &format, "a", 0)["content"],
            ""
        );
        assert_eq!(
            (finish_reason("stop", 1), finish_reason("length", 1)),
            ("tool_calls", "length")
        );
    }
}
