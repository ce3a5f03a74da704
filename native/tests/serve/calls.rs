//! Answers that may call once, in a style that has no mark behind a call: they end where the call does.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::scene::{Plan, Scene};

#[test]
fn an_answer_that_may_call_once_ends_behind_its_call() {
    let scene = Scene::start(Plan::default());
    let client = scene.client;
    let call = r#"\{"name": "rain", "arguments": \{"wet": true\}\}"#;
    // The model is made to write seven of them.
    let form = format!("\\[TOOL_CALLS\\]\\[{call}(, {call}){{6}}\\]");
    let tool =
        json!({"type": "function", "function": {"name": "rain", "parameters": {"type": "object"}}});
    let mut body = json!({"messages": [{"role": "user", "content": "the cat"}], "tools": [tool], "n": 2,
        "max_tokens": 390, "structured_outputs": {"regex": form}, "parallel_tool_calls": true, "seed": 1});
    let tokens = |whole: &Value| whole["usage"]["completion_tokens"].as_u64().unwrap();
    let many = client.ask(CHAT, &body);
    body["parallel_tool_calls"] = json!(false);
    let one = client.ask(CHAT, &body);
    for (whole, calls) in [(&many, 7), (&one, 1)] {
        for choice in whole["choices"].as_array().unwrap() {
            assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
            let message = &choice["message"];
            assert_eq!(message["tool_calls"].as_array().unwrap().len(), calls);
            assert!(message["content"].is_null(), "{choice}");
            let arguments = &message["tool_calls"][0]["function"]["arguments"];
            assert_eq!(arguments, "{\"wet\": true}");
        }
    }
    assert!(tokens(&one) * 3 < tokens(&many), "{one}");
    client.wait_until_free();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = client.post(CHAT, &body).events();
    let reasons: Vec<_> = events
        .iter()
        .filter_map(|event| event["choices"][0]["finish_reason"].as_str())
        .collect();
    assert_eq!(reasons, ["tool_calls", "tool_calls"]);
    let names = events.iter().flat_map(|event| {
        let calls = event["choices"][0]["delta"]["tool_calls"].as_array();
        let calls = calls.into_iter().flatten();
        calls.filter_map(|call| call["function"]["name"].as_str())
    });
    assert_eq!(names.collect::<Vec<_>>(), ["rain", "rain"]);
    assert!(tokens(events.last().unwrap()) * 3 < tokens(&many));
    client.wait_until_free();
    // They count as what they are told to have ended by.
    let metrics = client.get("/metrics").body;
    for sample in [
        "finished_reason=\"stop\"} 6\n",
        "finished_reason=\"abort\"} 0\n",
    ] {
        assert!(metrics.contains(sample), "{sample} in {metrics}");
    }
}
