//! Requests of OpenAI's `/v1/responses`, written as the chat requests that they are: one reader, one
//! meaning. Answers are `responses_stream`'s.

use serde_json::{Value, json};

use super::fields::Fields;
use super::refusal::{Name, Refusal};
use super::response_items;
use crate::output;

/// Fields that would change the answer, and that nothing here stands behind.
const UNSERVED: [&str; 7] = [
    "context_management",
    "previous_response_id",
    "conversation",
    "prompt",
    "background",
    "max_tool_calls",
    "top_logprobs",
];

/// The body as a chat's. Fields that both have are left as they are, and so are those of vLLM's.
///
/// # Errors
/// What has no like among chats, by its own name.
pub fn as_chat(body: &Value) -> Result<Value, Refusal> {
    let fields = Fields::of(body)?;
    for name in UNSERVED {
        let asks = |value: &&Value| **value != Value::Bool(false) && **value != json!(0);
        if body
            .get(name)
            .filter(|value| !value.is_null())
            .filter(asks)
            .is_some()
        {
            let said = match name {
                "previous_response_id" | "conversation" => {
                    "is not served: this server keeps no responses"
                }
                _ => "is not served",
            };
            return Err(Refusal::of(name, said));
        }
    }
    // Thoughts are told as they are, which is what they would be wanted encrypted for: to be sent back.
    let included = fields.texts("include")?;
    if let Some(other) = included
        .iter()
        .find(|name| *name != "reasoning.encrypted_content")
    {
        let other = output::beginning(other);
        let said = format!("asks for {other:?}, which is not served");
        return Err(Refusal::of("include", said));
    }
    let mut chat = body.as_object().cloned().unwrap_or_default();
    let ours = [
        "input",
        "instructions",
        "max_output_tokens",
        "text",
        "tools",
        "tool_choice",
        "reasoning",
        "truncation",
        "include",
    ];
    for name in ours.iter().chain(&UNSERVED) {
        chat.remove(*name);
    }
    chat.insert(
        "messages".into(),
        Value::Array(response_items::messages(&fields)?),
    );
    if let Some(most) = fields.count("max_output_tokens")? {
        chat.insert("max_completion_tokens".into(), json!(most));
    }
    if let Some(text) = fields.object("text")?
        && let Some(format) = text.get("format").filter(|format| !format.is_null())
    {
        chat.insert("response_format".into(), response_format(format));
    }
    if let Some(tools) = fields.list("tools")? {
        let tools = tools.iter().map(nested);
        chat.insert("tools".into(), tools.collect());
    }
    if let Some(choice) = fields.get("tool_choice") {
        let choice = match choice.is_object() {
            true => nested(choice),
            false => choice.clone(),
        };
        chat.insert("tool_choice".into(), choice);
    }
    if let Some(reasoning) = fields.object("reasoning")?
        && reasoning.get("effort").and_then(Value::as_str) == Some("none")
    {
        let given = chat.entry("chat_template_kwargs").or_insert(json!({}));
        if let Some(given) = given.as_object_mut() {
            given.entry("enable_thinking").or_insert(json!(false));
        }
    }
    match fields.text("truncation")? {
        None | Some("disabled") => {}
        Some("auto") => {
            chat.insert("truncate_prompt_tokens".into(), json!(-1));
        }
        Some(_) => {
            let said = "must be auto or disabled";
            return Err(Refusal::of("truncation", said));
        }
    }
    Ok(Value::Object(chat))
}

/// What a chat's reader reads by the names it has in this body; what is not listed came as it is.
pub fn names(body: &Value) -> Vec<Name> {
    let given = |path: &str| body.pointer(path).is_some_and(|value| !value.is_null());
    let mut names = vec![("messages", "input"), ("tools[].function", "tools[]")];
    if given("/max_output_tokens") {
        names.push(("max_completion_tokens", "max_output_tokens"));
        names.push(("max_tokens", "max_output_tokens"));
    }
    if given("/text/format") {
        names.push(("response_format.json_schema", "text.format"));
        names.push(("response_format", "text.format"));
    }
    if given("/truncation") {
        names.push(("truncate_prompt_tokens", "truncation"));
    }
    names
}

/// `text.format` holds flat what `response_format` nests.
fn response_format(format: &Value) -> Value {
    match format.get("type").and_then(Value::as_str) {
        Some("json_schema") => json!({"type": "json_schema", "json_schema": format}),
        _ => format.clone(),
    }
}

/// A function is flat here and nested in a chat.
fn nested(value: &Value) -> Value {
    match value.as_object() {
        Some(object) if object.get("type") == Some(&json!("function")) => {
            let mut function = object.clone();
            function.remove("type");
            json!({"type": "function", "function": function})
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::described;
    use crate::openai::refusal::Below;

    #[test]
    fn what_is_refused_is_described() {
        let fields = described::fields("/v1/responses");
        for name in UNSERVED {
            let passed = &fields[name]["enum"];
            match name {
                "background" => assert_eq!(passed, &json!([false, null])),
                "top_logprobs" => assert_eq!(passed, &json!([0, null])),
                _ => assert_eq!(fields[name]["type"], "null", "{name}"),
            }
        }
        assert_eq!(fields["n"]["enum"], json!([1, null]));
    }

    #[test]
    fn a_text_and_what_goes_with_it() {
        let chat = as_chat(&json!({
            "model": "m", "input": "Hi", "instructions": "Be brief", "max_output_tokens": 9,
            "temperature": 0.5, "seed": 3, "stream": true, "truncation": "auto",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
            "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": true}],
            "tool_choice": {"type": "function", "name": "f"}, "reasoning": {"effort": "none"},
        }))
        .unwrap();
        assert_eq!(
            chat,
            json!({
                "model": "m", "temperature": 0.5, "seed": 3, "stream": true,
                "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}],
                "max_completion_tokens": 9, "truncate_prompt_tokens": -1,
                "response_format": {"type": "json_schema", "json_schema":
                    {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": true}}],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "chat_template_kwargs": {"enable_thinking": false},
            })
        );
    }

    #[test]
    fn items_become_messages() {
        let chat = as_chat(&json!({"input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "c", "annotations": []}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "x"},
            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "y"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
            {"type": "function_call", "call_id": "3", "name": "f", "arguments": "{}"},
        ]}))
        .unwrap();
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        assert_eq!(
            chat["messages"],
            json!([
                {"role": "user", "content": "ab"},
                {"role": "assistant", "content": "c", "reasoning_content": "hm",
                    "tool_calls": [call("1"), call("2")]},
                {"role": "tool", "tool_call_id": "1", "content": "x"},
                {"role": "tool", "tool_call_id": "2", "content": "y"},
                {"role": "assistant", "content": "", "reasoning_content": "so", "tool_calls": [call("3")]},
            ])
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (param, body) in [
            ("input", json!({})),
            ("input", json!({"input": []})),
            ("input", json!({"input": [7]})),
            ("input", json!({"input": [{"role": "user"}]})),
            (
                "input",
                json!({"input": [{"type": "item_reference", "id": "x"}]}),
            ),
            (
                "input",
                json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            ),
            (
                "input",
                json!({"input": [{"type": "function_call", "call_id": "1"}]}),
            ),
            (
                "input",
                json!({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}]}),
            ),
            ("input", json!({"input": [{"role": "cat", "content": "a"}]})),
            (
                "previous_response_id",
                json!({"input": "a", "previous_response_id": "resp_1"}),
            ),
            ("background", json!({"input": "a", "background": true})),
            (
                "conversation",
                json!({"input": "a", "conversation": {"id": "c"}}),
            ),
            ("include", json!({"input": "a", "include": 5})),
            (
                "include",
                json!({"input": "a", "include": ["message.output_text.logprobs"]}),
            ),
            ("truncation", json!({"input": "a", "truncation": "some"})),
            (
                "max_output_tokens",
                json!({"input": "a", "max_output_tokens": "9"}),
            ),
        ] {
            let refused = as_chat(&body).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some(param), "{body}");
        }
        let passed = json!({"input": "a", "background": false, "top_logprobs": 0, "store": true,
            "include": ["reasoning.encrypted_content"]});
        assert!(as_chat(&passed).is_ok());
        let names = names(&json!({"input": []}));
        let refused = Below::new("[0].role", "must be").of("messages");
        let renamed = Below::new("[0].role", "must be").of("input");
        assert_eq!(refused.renamed(&names), renamed);
    }
}
