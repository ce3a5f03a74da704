//! Requests of `/v1/messages` and `/v1/messages/count_tokens`, written as the chat requests of OpenAI's
//! protocol that they are: one reader, one meaning.

use serde_json::{Value, json};

use super::{messages, output_format, tools};
use crate::openai::fields::Fields;
use crate::openai::refusal::{Below, Name, Refusal};

/// Fields that would change the answer, and that nothing here stands behind.
const UNSERVED: [&str; 3] = ["mcp_servers", "container", "context_management"];

/// The body as a chat's; fields that both have, and those of vLLM's, are left as they are.
/// `max_tokens` must be there unless `counts` the prompt alone.
///
/// # Errors
/// What has no like among chats, by its own name.
pub fn as_chat(body: &Value, counts: bool) -> Result<Value, Refusal> {
    let fields = Fields::of(body)?;
    for name in UNSERVED {
        if fields.gives(name) {
            return Err(Refusal::of(name, "is not served"));
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
        Some(0) => return Err(Refusal::of("max_tokens", "must be 1 or more")),
        None if !counts => {
            return Err(Refusal::of("max_tokens", "must be given"));
        }
        _ => {}
    }
    let messages = messages::read(&fields)?;
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
    tools::put_into(&mut chat, &fields)?;
    output_format::put_into(&mut chat, &fields)?;
    if let Some(thinking) = fields.object("thinking")? {
        let enabled = match thinking.get("type").and_then(Value::as_str) {
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            Some("adaptive") => None,
            _ => {
                let must = "must be enabled, disabled or adaptive";
                return Err(Below::new(".type", must).of("thinking"));
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

/// What a chat's reader reads by the names it has in this body; what is not listed came as it is.
pub fn names(body: &Value) -> Vec<Name> {
    let given = |path: &str| body.pointer(path).is_some_and(|value| !value.is_null());
    let mut names = vec![
        (
            "parallel_tool_calls",
            "tool_choice.disable_parallel_tool_use",
        ),
        ("tools[].function.parameters", "tools[].input_schema"),
        ("tools[].function", "tools[]"),
    ];
    if given("/stop_sequences") {
        names.push(("stop", "stop_sequences"));
    }
    if given("/output_config/format") {
        names.push(("response_format.json_schema", "output_config.format"));
    } else if given("/output_format") {
        names.push(("response_format.json_schema", "output_format"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::described;

    #[test]
    fn what_is_refused_is_described() {
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let fields = described::fields(path);
            for name in UNSERVED {
                assert_eq!(fields[name]["type"], "null", "{path} {name}");
            }
        }
        assert_eq!(
            described::fields("/v1/messages")["n"]["enum"],
            json!([1, null])
        );
    }

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
        for (given, field, name) in [
            ("stop_sequences", "stop", "stop_sequences"),
            ("stop", "stop", "stop"),
            (
                "output_format",
                "response_format.json_schema.schema",
                "output_format.schema",
            ),
        ] {
            let refused = Refusal::because(field, "why").renamed(&names(&json!({given: {}})));
            assert_eq!(refused, Refusal::because(name, "why"));
        }
    }
}
