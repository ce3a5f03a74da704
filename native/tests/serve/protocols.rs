//! Tools, and the protocols that stand beside OpenAI's chats: its responses, and Anthropic's messages. The model
//! draws at random; what it must call is held to by a grammar.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::scene::{Client, Program};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

fn parameters() -> Value {
    json!({"type": "object", "properties": {"wet": {"type": "boolean"}}, "required": ["wet"],
        "additionalProperties": false})
}

/// The events of a stream by their names, each of which is the type in its data.
fn named_events(body: &str) -> Vec<Value> {
    let mut name = "";
    let mut events = Vec::new();
    for line in body.lines() {
        if let Some(given) = line.strip_prefix("event: ") {
            name = given;
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!(event["type"], name, "{line}");
            events.push(event);
        }
    }
    events
}

#[test]
fn the_program_serves_several_and_calls_tools() {
    let server = Program::start(&["-m", "./caller", "--idle-unload", "600"]);
    let client = server.client;
    for model in ["tiny", "caller"] {
        let body = json!({"model": model, "prompt": "a", "max_tokens": 2});
        assert_eq!(client.ask("/v1/completions", &body)["model"], model);
    }
    let text = client.get("/metrics").body;
    let lines = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(lines("# TYPE vllm:num_requests_running "), 1);
    assert_eq!(lines("vllm:num_requests_running{"), 2);
    chat_tools(client);
    responses(client);
    messages(client);
    wrong_fields(client);
}

fn chat_tools(client: Client) {
    let tool =
        json!({"type": "function", "function": {"name": "rain", "parameters": parameters()}});
    let mut body = json!({"model": "caller", "messages": [{"role": "user", "content": "the cat"}],
        "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 400, "seed": 4});
    let whole = client.ask(CHAT, &body);
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        (&call["type"], &call["function"]["name"]),
        (&json!("function"), &json!("rain"))
    );
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!(arguments["wet"].is_boolean(), "{whole}");
    body["stream"] = json!(true);
    let mut said = String::new();
    let mut reason = Value::Null;
    for event in client.post(CHAT, &body).events() {
        let choice = &event["choices"][0];
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            said += call["function"]["arguments"].as_str().unwrap_or_default();
        }
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    assert_eq!(json!(said), call["function"]["arguments"]);
    assert_eq!(reason, "tool_calls");
    // Back with its result, and to a model that was taught none.
    body["stream"] = json!(false);
    body["tool_choice"] = json!("auto");
    body["max_tokens"] = json!(4);
    body["messages"] = json!([{"role": "user", "content": "the cat"}, choice["message"],
        {"role": "tool", "tool_call_id": call["id"], "content": "yes"}]);
    client.ask(CHAT, &body);
    body["model"] = json!("tiny");
    assert_eq!(client.post(CHAT, &body).error()["param"], "tools");
}

fn responses(client: Client) {
    let tool = json!({"type": "function", "name": "rain", "parameters": parameters()});
    let mut body = json!({"model": "caller", "input": "the cat", "tools": [tool], "tool_choice": "required",
        "parallel_tool_calls": false, "max_output_tokens": 400, "seed": 4});
    let whole = client.ask(RESPONSES, &body);
    assert_eq!(
        (&whole["object"], &whole["status"]),
        (&json!("response"), &json!("completed"))
    );
    let call = &whole["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("rain"))
    );
    assert!(whole["id"].as_str().unwrap().starts_with("resp_"));
    body["stream"] = json!(true);
    let reply = client.post(RESPONSES, &body);
    let events = named_events(&reply.body);
    assert_eq!(events[0]["type"], "response.created");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(
        last["response"]["output"][0]["arguments"],
        call["arguments"]
    );
    // What is said, and where it is cut.
    let plain = json!({"model": "tiny", "input": [{"role": "user", "content": "a"}], "max_output_tokens": 3,
        "ignore_eos": true});
    let cut = client.ask(RESPONSES, &plain);
    assert_eq!(cut["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(cut["usage"]["output_tokens"], 3);
}

/// Fields that a chat's reader refuses are named as they are called here, the field and what is said of it alike.
fn wrong_fields(client: Client) {
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

fn messages(client: Client) {
    let user = json!([{"role": "user", "content": "the cat"}]);
    let tool = json!({"name": "rain", "input_schema": parameters()});
    let mut body = json!({"model": "caller", "messages": user, "max_tokens": 400, "tools": [tool],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "seed": 4});
    let whole = client.ask(MESSAGES, &body);
    assert_eq!(
        (&whole["type"], &whole["stop_reason"]),
        (&json!("message"), &json!("tool_use"))
    );
    let call = &whole["content"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("tool_use"), &json!("rain"))
    );
    assert!(call["input"]["wet"].is_boolean(), "{whole}");
    body["stream"] = json!(true);
    let events = named_events(&client.post(MESSAGES, &body).body);
    assert_eq!(events[0]["type"], "message_start");
    let tokens = events[0]["message"]["usage"]["input_tokens"]
        .as_u64()
        .unwrap();
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let json_text: String = events
        .iter()
        .filter_map(|event| event["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(
        serde_json::from_str::<Value>(&json_text).unwrap(),
        call["input"]
    );
    // As long as is said before.
    let count = format!("{MESSAGES}/count_tokens");
    let counted = client.ask(&count, &body)["input_tokens"].as_u64().unwrap();
    let usage = &events[0]["message"]["usage"];
    assert_eq!(
        counted,
        tokens + usage["cache_read_input_tokens"].as_u64().unwrap()
    );
    // What an assistant has begun is continued.
    let begun = json!([user[0], {"role": "assistant", "content": "a dog"}]);
    let ids = json!({"model": "tiny", "messages": begun, "continue_final_message": true});
    let begun = json!({"model": "tiny", "messages": begun, "max_tokens": 1});
    let counted = &client.ask(&count, &begun)["input_tokens"];
    assert_eq!(*counted, client.ask("/tokenize", &ids)["count"]);
    for (status, kind, wrong) in [
        (
            400,
            "invalid_request_error",
            json!({"model": "tiny", "messages": user}),
        ),
        (
            404,
            "not_found_error",
            json!({"model": "x", "messages": user, "max_tokens": 1}),
        ),
    ] {
        let reply = client.post(MESSAGES, &wrong);
        let error = reply.json();
        assert_eq!(
            (reply.status, &error["error"]["type"]),
            (status, &json!(kind)),
            "{error}"
        );
        assert_eq!(error["type"], "error");
        assert_eq!(error["request_id"].as_str(), reply.header("request-id"));
    }
}
