//! What is wrong with a body of a protocol that stands beside OpenAI's chats, by the names it has there.

use serde_json::{Value, json};

use crate::protocols::{MESSAGES, RESPONSES};
use crate::scene::Client;

/// Fields that a chat's reader refuses are named as they are called here, the field and what is said of it alike.
pub(crate) fn wrong_fields(client: Client) {
    let with = |path: &str, name: &str, value: &Value| {
        let mut body = match path {
            RESPONSES => json!({"model": "caller", "input": "a"}),
            _ => {
                json!({"model": "caller", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
            }
        };
        body[name] = value.clone();
        let reply = client.post(path, &body);
        assert_eq!(reply.status, 400, "{path} {body}: {reply:?}");
        reply
    };
    let call = |arguments: &str| {
        json!([{"role": "user", "content": "a"},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": arguments}])
    };
    let function = |more: Value| {
        let mut tool = json!({"type": "function", "name": "f"});
        tool.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([tool])
    };
    let schema =
        |schema: Value| json!({"format": {"type": "json_schema", "name": "n", "schema": schema}});
    for (name, value, param, said) in [
        ("input", json!([]), "input", "input must"),
        ("input", json!("a ".repeat(2000)), "input", ""),
        (
            "input",
            json!("a ".repeat(50_000)),
            "input",
            "input has a text",
        ),
        (
            "input",
            json!([{"role": "cat", "content": "a"}]),
            "input",
            "input[0].role must",
        ),
        ("input", call("[1]"), "input", "input[1].arguments must"),
        (
            "instructions",
            json!(5),
            "instructions",
            "instructions is 5",
        ),
        (
            "max_output_tokens",
            json!("9"),
            "max_output_tokens",
            "max_output_tokens is",
        ),
        ("text", json!(5), "text", "text is 5"),
        (
            "text",
            json!({"format": "json"}),
            "text.format",
            "text.format is",
        ),
        (
            "text",
            json!({"format": {"type": "xml"}}),
            "text.format.type",
            "text.format.type must",
        ),
        (
            "text",
            schema(json!(5)),
            "text.format.schema",
            "text.format.schema must",
        ),
        (
            "text",
            schema(json!({"type": "numbre"})),
            "text.format.schema",
            "text.format.schema: ",
        ),
        ("tools", json!(5), "tools", "tools is 5"),
        (
            "tools",
            function(json!({"name": ""})),
            "tools",
            "tools[0].name must",
        ),
        (
            "tools",
            function(json!({"parameters": 5})),
            "tools",
            "tools[0].parameters must",
        ),
        (
            "tool_choice",
            json!("any"),
            "tool_choice",
            "tool_choice must",
        ),
        ("reasoning", json!("low"), "reasoning", "reasoning is"),
        ("truncation", json!("some"), "truncation", "truncation must"),
        ("metadata", json!({"a": []}), "metadata", "metadata must"),
        (
            "previous_response_id",
            json!("resp_1"),
            "previous_response_id",
            "previous_response_id is",
        ),
        ("stop", json!(5), "stop", "stop is 5"),
        ("top_p", json!(2), "top_p", ""),
        ("n", json!(2), "n", "n must be 1"),
    ] {
        let error = with(RESPONSES, name, &value).error();
        assert_eq!(error["param"], param, "{error}");
        assert!(
            error["message"].as_str().unwrap().starts_with(said),
            "{error}"
        );
    }
    let tool = |more: Value| {
        let mut tool = json!({"name": "f", "input_schema": {}});
        tool.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([tool])
    };
    let format = |schema: Value| json!({"format": {"type": "json_schema", "schema": schema}});
    for (name, value, said) in [
        ("max_tokens", json!("9"), "max_tokens is"),
        (
            "messages",
            json!([{"role": "cat"}]),
            "messages[0].role must",
        ),
        ("stop_sequences", json!(5), "stop_sequences is 5"),
        ("system", json!(5), "system must"),
        ("tools", tool(json!({"name": ""})), "tools[0].name must"),
        (
            "tools",
            tool(json!({"description": 5})),
            "tools[0].description must",
        ),
        (
            "tools",
            tool(json!({"input_schema": 5})),
            "tools[0].input_schema must",
        ),
        (
            "tool_choice",
            json!({"type": "tool"}),
            "tool_choice.name must",
        ),
        ("thinking", json!({"type": "on"}), "thinking.type must"),
        (
            "output_config",
            format(json!(5)),
            "output_config.format.schema must",
        ),
        (
            "output_format",
            json!({"type": "text"}),
            "output_format.type must",
        ),
        (
            "output_format",
            json!({"type": "json_schema", "schema": {"type": "numbre"}}),
            "output_format.schema: ",
        ),
        (
            "output_config",
            format(json!({"type": "numbre"})),
            "output_config.format.schema: ",
        ),
        ("stop", json!(5), "stop is 5"),
        ("top_k", json!("5"), "top_k is"),
    ] {
        let error = with(MESSAGES, name, &value).json()["error"].clone();
        assert!(
            error["message"].as_str().unwrap().starts_with(said),
            "{error}"
        );
    }
    // A form is heeded in each protocol.
    let wanted = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
        "additionalProperties": false});
    let body = json!({"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 400,
        "seed": 7, "output_config": format(wanted.clone())});
    let message = client.ask(MESSAGES, &body);
    let body = json!({"model": "tiny", "input": "a", "max_output_tokens": 400, "seed": 7, "text": schema(wanted)});
    let response = client.ask(RESPONSES, &body);
    for text in [
        &message["content"][0]["text"],
        &response["output"][0]["content"][0]["text"],
    ] {
        let value: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        assert!(value["a"].is_boolean(), "{text}");
    }
}
