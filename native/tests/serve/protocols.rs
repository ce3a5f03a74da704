//! Tools, and the protocols that stand beside OpenAI's chats: its responses, and Anthropic's messages. The model
//! draws at random; what it must call is held to by a grammar.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::scene::{Client, Program};

pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";

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
    crate::wrong_fields::wrong_fields(client);
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

/// Where a body leaves it open, a response says what the model's own files gave.
#[test]
fn a_response_says_how_it_was_drawn() {
    let config = r#"{"temperature": 0.3, "top_p": 0.8, "do_sample": true}"#;
    let setup = format!("echo '{config}' > model/generation_config.json");
    let server = Program::start_after(&setup, &[]);
    let mut body = json!({"input": "a", "max_output_tokens": 1});
    for (given, said) in [(None, 0.3), (Some(0.7), 0.7)] {
        body["temperature"] = json!(given);
        for stream in [false, true] {
            body["stream"] = json!(stream);
            let reply = server.client.post(RESPONSES, &body);
            let response = match stream {
                true => named_events(&reply.body).pop().unwrap()["response"].clone(),
                false => reply.json(),
            };
            assert_eq!(response["temperature"], said, "{response}");
            assert_eq!(response["top_p"], 0.8, "{response}");
        }
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
