//! Errors in Anthropic's shape, whoever met them: the door, the body, the model, the queue, the engine, the end.

use std::time::Duration;

use serde_json::{Value, json};
use twoclock::serve::auth::ApiKeys;
use twoclock::serve::shutdown::Phase;

use crate::scene::{Fault, Gate, JSON, Plan, Scene, long, wait};

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const KEY: &str = "x-api-key: a-key\r\n";

fn message() -> Value {
    json!({"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 400, "ignore_eos": true})
}

#[test]
fn every_error_below_messages_has_its_shape() {
    let mut plan = Plan {
        keys: ApiKeys::of(["a-key"]),
        max_num_seqs: 1,
        max_waiting: 0,
        step: Duration::from_millis(20),
        ..Plan::default()
    };
    plan.settings.max_body = 2000;
    plan.settings.body_timeout = Duration::from_millis(200);
    plan.settings.request_timeout = Duration::from_millis(600);
    let scene = Scene::start(plan);
    let client = scene.client;
    let with_key = format!("{KEY}{JSON}");
    let whole = message().to_string();
    let mut other = message();
    other["model"] = json!("other");
    let other = other.to_string();
    let long_body = " ".repeat(3000);
    for path in [MESSAGES, COUNT] {
        for (method, headers, body, status, kind) in [
            ("POST", JSON, &*whole, 401, "authentication_error"),
            ("GET", KEY, "", 405, "invalid_request_error"),
            ("POST", KEY, "{}", 415, "invalid_request_error"),
            ("POST", &with_key, "{", 400, "invalid_request_error"),
            ("POST", &with_key, "{}", 400, "invalid_request_error"),
            ("POST", &with_key, &other, 404, "not_found_error"),
            ("POST", &with_key, &long_body, 413, "request_too_large"),
        ] {
            let reply = client.send(method, path, headers, body);
            let said = (reply.status, reply.message_error());
            assert_eq!(said, (status, kind.to_owned()), "{method} {path} {body}");
        }
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{with_key}Content-Length: 10\r\nConnection: close\r\n\r\n{{"
        );
        let slow = client.raw(head.as_bytes());
        assert_eq!(
            (slow.status, &*slow.message_error()),
            (408, "invalid_request_error")
        );
    }
    let nowhere = client.send("POST", "/v1/messages/batches", &with_key, "{}");
    assert_eq!(
        (nowhere.status, &*nowhere.message_error()),
        (404, "not_found_error")
    );
    let late = client.send("POST", MESSAGES, &with_key, &whole);
    assert_eq!(
        (late.status, &*late.message_error()),
        (504, "timeout_error")
    );
    client.with_key("a-key").wait_until_free();
    let _running = client.with_key("a-key").begin(MESSAGES, &message());
    wait(|| client.with_key("a-key").get("/get_load").json()[0]["num_reqs"] == 1);
    let full = client.send("POST", MESSAGES, &with_key, &whole);
    assert_eq!(
        (full.status, &*full.message_error()),
        (429, "rate_limit_error")
    );
    assert_eq!(full.header("retry-after"), Some("1"));
    scene.shutdown.advance(Phase::Draining);
    let ending = client.send("POST", MESSAGES, &with_key, &whole);
    assert_eq!(
        (ending.status, &*ending.message_error()),
        (503, "overloaded_error")
    );
    // Elsewhere the shape is OpenAI's.
    let refused = client.send("POST", "/v1/completions", JSON, &long(1).to_string());
    assert_eq!(refused.error()["type"], "authentication_error");
}

/// Whoever looks for it in the log needs the name that the request has there, also where the client gave it.
#[test]
fn an_error_in_a_stream_has_the_requests_name() {
    let gate = Gate::default();
    let mut plan = Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    };
    plan.settings.request_timeout = Duration::from_millis(300);
    let scene = Scene::start(plan);
    let mut body = message();
    body["stream"] = json!(true);
    for given in [Some("trace-1"), None] {
        let header = given.map(|id| format!("x-request-id: {id}\r\n"));
        let headers = header.unwrap_or_default() + JSON;
        let reply = scene
            .client
            .send("POST", MESSAGES, &headers, &body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        let mut data = reply.body.lines().filter_map(|l| l.strip_prefix("data: "));
        let last: Value = serde_json::from_str(data.next_back().unwrap()).unwrap();
        assert_eq!(last["error"]["type"], "timeout_error", "{last}");
        let id = last["request_id"].as_str();
        assert!(given.is_none_or(|given| Some(given) == id), "{last}");
        assert_eq!(id, reply.header("request-id"), "{last}");
        assert_eq!(id, reply.header("x-request-id"), "{last}");
    }
    gate.open(1000);
}

#[test]
fn what_an_engine_meets_is_said_in_it_too() {
    for (fault, status, kind) in [
        (Fault::Lost, 503, "overloaded_error"),
        (Fault::Panic, 500, "api_error"),
        (Fault::Loading, 503, "overloaded_error"),
    ] {
        let plan = Plan {
            fault: Some((0, fault)),
            ..Plan::default()
        };
        let scene = Scene::start(plan);
        let reply = scene.client.post(MESSAGES, &message());
        assert_eq!((reply.status, &*reply.message_error()), (status, kind));
    }
}

/// A stream is not begun for it.
#[test]
fn a_prompt_without_tokens_is_refused() {
    let scene = Scene::start(Plan::default());
    for prompt in [json!([[]]), json!([[1], []])] {
        let body = json!({"prompt": prompt, "stream": true, "max_tokens": 1});
        let refused = scene.client.post("/v1/completions", &body);
        assert_eq!(
            (refused.status, &refused.error()["param"]),
            (400, &json!("prompt")),
            "{refused:?}"
        );
    }
}
