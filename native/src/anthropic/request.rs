//! Requests of `/v1/messages` and `/v1/messages/count_tokens`, written as the chat requests of OpenAI's
//! protocol that they are: one reader, one meaning.

use serde_json::{Map, Value, json};

use super::output_format;
use crate::openai::fields::{Fields, Refusal};

/// Fields that would change the answer, and that nothing here stands behind.
const UNSERVED: [&str; 3] = ["mcp_servers", "container", "context_management"];

/// Fields of chats by the names they have here.
const RENAMED: [(&str, &str); 3] = [
    ("stop", "stop_sequences"),
    (
        "parallel_tool_calls",
        "tool_choice.disable_parallel_tool_use",
    ),
    ("response_format.json_schema", "output_config.format"),
];

/// The body as a chat's; fields that both have, and those of vLLM's, are left as they are.
/// `max_tokens` must be there unless `counts` the prompt alone.
///
/// # Errors
/// What has no like among chats, by its own name.
pub fn as_chat(body: &Value, counts: bool) -> Result<Value, Refusal> {
    let fields = Fields::of(body)?;
    for name in UNSERVED {
        if fields.get(name).is_some() {
            return Err(Refusal::of(name, format!("{name} is not served")));
        }
    }
    let mut chat = body.as_object().cloned().unwrap_or_default();
    for name in [
        "system",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "metadata",
        "output_config",
        "output_format",
    ] {
        chat.remove(name);
    }
    match fields.count("max_tokens")? {
        Some(0) => return Err(Refusal::of("max_tokens", "max_tokens must be 1 or more")),
        None if !counts => {
            return Err(Refusal::of("max_tokens", "max_tokens must be given"));
        }
        _ => {}
    }
    let messages = messages(&fields)?;
    // As in its own service: the answer goes on with an assistant's last message.
    if messages
        .last()
        .is_some_and(|last| last["role"] == "assistant")
    {
        chat.insert("continue_final_message".into(), json!(true));
    }
    chat.insert("messages".into(), Value::Array(messages));
    let stop = fields.texts("stop_sequences")?;
    if !stop.is_empty() {
        chat.insert("stop".into(), json!(stop));
    }
    if let Some(tools) = fields.list("tools")? {
        let tools = tools.iter().enumerate().map(|(index, tool)| {
            function(tool).map_err(|why| Refusal::of("tools", format!("tools[{index}]{why}")))
        });
        chat.insert("tools".into(), tools.collect::<Result<Value, _>>()?);
    }
    if let Some(choice) = fields.object("tool_choice")? {
        put_choice(choice, &mut chat)?;
    }
    output_format::put_into(&mut chat, &fields)?;
    if let Some(thinking) = fields.object("thinking")? {
        let enabled = match thinking.get("type").and_then(Value::as_str) {
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            Some("adaptive") => None,
            _ => {
                let said = "thinking.type must be enabled, disabled or adaptive";
                return Err(Refusal::of("thinking", said));
            }
        };
        if let Some(enabled) = enabled {
            let given = chat.entry("chat_template_kwargs").or_insert(json!({}));
            if let Some(given) = given.as_object_mut() {
                given.entry("enable_thinking").or_insert(json!(enabled));
            }
        }
    }
    Ok(Value::Object(chat))
}

/// What a chat's reader refused, by the name the field has here.
pub fn renamed(refusal: Refusal) -> Refusal {
    let refusal = refusal.renamed(&RENAMED);
    match refusal.param.as_deref() {
        Some("tools") => {
            let said = refusal
                .message
                .replacen(".function.parameters", ".input_schema", 1);
            Refusal {
                message: said.replacen(".function.", ".", 1),
                ..refusal
            }
        }
        _ => refusal,
    }
}

/// A tool as a chat has it.
fn function(tool: &Value) -> Result<Value, String> {
    let tool = tool.as_object().ok_or(" must be an object")?;
    match tool.get("type").and_then(Value::as_str) {
        None | Some("custom") => {}
        Some(other) => return Err(format!(".type {other:?} is not served")),
    }
    if !tool.get("input_schema").is_some_and(Value::is_object) {
        return Err(".input_schema must be a JSON schema, an object".to_owned());
    }
    let mut function = Map::new();
    for (from, to) in [
        ("name", "name"),
        ("description", "description"),
        ("input_schema", "parameters"),
    ] {
        if let Some(value) = tool.get(from) {
            function.insert(to.to_owned(), value.clone());
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

fn put_choice(choice: &Map<String, Value>, chat: &mut Map<String, Value>) -> Result<(), Refusal> {
    let refuse = |said: &str| Err(Refusal::of("tool_choice", said));
    let choosen = match choice.get("type").and_then(Value::as_str) {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => match choice.get("name").and_then(Value::as_str) {
            Some(name) => json!({"type": "function", "function": {"name": name}}),
            None => return refuse("tool_choice.name must be a string"),
        },
        _ => return refuse("tool_choice.type must be auto, any, tool or none"),
    };
    chat.insert("tool_choice".into(), choosen);
    match choice.get("disable_parallel_tool_use") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(one)) => {
            chat.insert("parallel_tool_calls".into(), json!(!one));
        }
        Some(_) => return refuse("tool_choice.disable_parallel_tool_use must be true or false"),
    }
    Ok(())
}

fn messages(fields: &Fields<'_>) -> Result<Vec<Value>, Refusal> {
    let mut messages = Vec::new();
    if let Some(system) = fields.get("system") {
        let text = texts(system).map_err(|why| Refusal::of("system", format!("system{why}")))?;
        messages.push(json!({"role": "system", "content": text}));
    }
    let given = fields.list("messages")?.filter(|list| !list.is_empty());
    let given =
        given.ok_or_else(|| Refusal::of("messages", "messages must be a list of at least one"))?;
    for (index, message) in given.iter().enumerate() {
        let refuse = |why: String| Refusal::of("messages", format!("messages[{index}]{why}"));
        let content = message.get("content").unwrap_or(&Value::Null);
        match message.get("role").and_then(Value::as_str) {
            Some("user") => put_user(content, &mut messages),
            Some("assistant") => assistant(content).map(|message| messages.push(message)),
            Some("system") => texts(content).map(|text| {
                messages.push(json!({"role": "system", "content": text}));
            }),
            _ => Err(".role must be user or assistant".to_owned()),
        }
        .map_err(refuse)?;
    }
    Ok(messages)
}

/// A text, or the texts of blocks.
fn texts(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let text = |block: &Value| match block.get("type").and_then(Value::as_str) {
                Some("text") => block.get("text")?.as_str().map(str::to_owned),
                _ => None,
            };
            let texts: Option<String> = blocks.iter().map(text).collect();
            texts.ok_or_else(|| " has a block that is no text".to_owned())
        }
        _ => Err(" must be a string or a list of text blocks".to_owned()),
    }
}

/// Results of calls become messages of their own, and stand before what else is said.
fn put_user(content: &Value, messages: &mut Vec<Value>) -> Result<(), String> {
    let blocks = match content {
        Value::Array(blocks) => blocks.as_slice(),
        text => {
            let text = texts(text).map_err(|why| format!(".content{why}"))?;
            messages.push(json!({"role": "user", "content": text}));
            return Ok(());
        }
    };
    let mut said = String::new();
    let mut says = false;
    for (n, block) in blocks.iter().enumerate() {
        let wrong = |why: String| format!(".content[{n}]{why}");
        match block.get("type").and_then(Value::as_str) {
            Some("text") => {
                let text = block.get("text").and_then(Value::as_str);
                said.push_str(text.ok_or_else(|| wrong(".text must be a string".into()))?);
                says = true;
            }
            Some("tool_result") => {
                let id = block.get("tool_use_id").and_then(Value::as_str);
                let id = id.ok_or_else(|| wrong(".tool_use_id must be a string".into()))?;
                let text = match block.get("content") {
                    None | Some(Value::Null) => String::new(),
                    Some(content) => {
                        texts(content).map_err(|why| wrong(format!(".content{why}")))?
                    }
                };
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            kind => return Err(wrong(format!(".{}", unserved(kind)))),
        }
    }
    if says || blocks.is_empty() {
        messages.push(json!({"role": "user", "content": said}));
    }
    Ok(())
}

/// What is said of a block that is none of those that are served.
fn unserved(kind: Option<&str>) -> String {
    match kind {
        Some(kind) => format!("type {kind:?} is not served"),
        None => "type must be a string".to_owned(),
    }
}

fn assistant(content: &Value) -> Result<Value, String> {
    let Value::Array(blocks) = content else {
        let text = texts(content).map_err(|why| format!(".content{why}"))?;
        return Ok(json!({"role": "assistant", "content": text}));
    };
    let (mut said, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for (n, block) in blocks.iter().enumerate() {
        let text = |name: &str| {
            let text = block.get(name).and_then(Value::as_str);
            text.ok_or_else(|| format!(".content[{n}].{name} must be a string"))
        };
        match block.get("type").and_then(Value::as_str) {
            Some("text") => said.push_str(text("text")?),
            Some("thinking") => thoughts.push_str(text("thinking")?),
            // Nobody here can read it, and nobody here wrote it.
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                let input = block.get("input").filter(|input| input.is_object());
                let input =
                    input.ok_or_else(|| format!(".content[{n}].input must be an object"))?;
                calls.push(json!({
                    "id": text("id")?,
                    "type": "function",
                    "function": {"name": text("name")?, "arguments": input},
                }));
            }
            kind => return Err(format!(".content[{n}].{}", unserved(kind))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_with_tools_becomes_a_chat() {
        let chat = as_chat(
            &json!({
                "model": "m", "max_tokens": 9, "stream": true, "top_k": 5,
                "system": [{"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}],
                "stop_sequences": ["END"], "metadata": {"user_id": "u"},
                "thinking": {"type": "disabled"},
                "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "text", "text": "b"},
                        {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}]},
                        {"type": "text", "text": "c"}]},
                ],
            }),
            false,
        )
        .unwrap();
        assert_eq!(
            chat,
            json!({
                "model": "m", "max_tokens": 9, "stream": true, "top_k": 5,
                "messages": [
                    {"role": "system", "content": "Be brief"},
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b", "reasoning_content": "hm", "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
                    {"role": "tool", "tool_call_id": "1", "content": "r"},
                    {"role": "user", "content": "c"},
                ],
                "stop": ["END"],
                "tools": [{"type": "function", "function":
                    {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
                "tool_choice": "required", "parallel_tool_calls": false,
                "chat_template_kwargs": {"enable_thinking": false},
            })
        );
        let named = json!({"messages": [{"role": "user", "content": "a"}],
            "tool_choice": {"type": "tool", "name": "f"}});
        let named = as_chat(&named, true).unwrap();
        assert_eq!(
            named["tool_choice"],
            json!({"type": "function", "function": {"name": "f"}})
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let messages = json!([{"role": "user", "content": "a"}]);
        let with = |name: &str, value: Value| {
            let mut body = json!({"messages": messages, "max_tokens": 1});
            body[name] = value;
            body
        };
        let user = |block: Value| with("messages", json!([{"role": "user", "content": [block]}]));
        for (param, body) in [
            ("max_tokens", json!({"messages": messages})),
            ("max_tokens", with("max_tokens", json!(0))),
            ("messages", with("messages", json!([]))),
            (
                "messages",
                with("messages", json!([{"role": "tool", "content": "a"}])),
            ),
            ("messages", user(json!({"type": "image"}))),
            ("messages", user(json!({"type": "tool_result"}))),
            (
                "messages",
                with(
                    "messages",
                    json!([{"role": "assistant", "content": [{"type": "tool_use"}]}]),
                ),
            ),
            ("system", with("system", json!(7))),
            ("tools", with("tools", json!([{"name": "f"}]))),
            (
                "tools",
                with(
                    "tools",
                    json!([{"type": "web_search_20250305", "name": "w"}]),
                ),
            ),
            ("tool_choice", with("tool_choice", json!({"type": "tool"}))),
            ("thinking", with("thinking", json!({"type": "on"}))),
            ("mcp_servers", with("mcp_servers", json!([{}]))),
            (
                "output_config.format.type",
                with("output_config", json!({"format": {"type": "text"}})),
            ),
            (
                "output_format.schema",
                with("output_format", json!({"type": "json_schema", "schema": 5})),
            ),
        ] {
            let refused = as_chat(&body, false).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some(param), "{body}");
        }
        let refused = renamed(Refusal::of("stop", "stop is 7"));
        assert_eq!(
            refused,
            Refusal::of("stop_sequences", "stop_sequences is 7")
        );
    }
}
