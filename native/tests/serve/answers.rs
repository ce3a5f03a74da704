//! What the server answers: every path, whole and in pieces.

use std::collections::BTreeSet;

use crate::scene::{Client, Program};
use crate::{dialects, faults, metrics};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const TEXT: &str = "/v1/completions";

/// A short chat, unless `more` says otherwise.
pub(crate) fn chat(more: Value) -> Value {
    with(
        json!({"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 6, "seed": 7}),
        more,
    )
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn every_path_answers() {
    let server = Program::start(&["--ping-interval", "0.5", "-v"]);
    let client = server.client;
    assert!(
        !server.said.contains("no key is asked for"),
        "{}",
        server.said
    );
    chats(client);
    completions(client);
    forms(client);
    embeddings(client);
    tokens(client);
    whats_there(client);
    faults::faults(client);
    dialects::dialects(client);
    metrics::metrics(client);
    metrics::steps(client);
    server.terminate();
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let line = log.lines().find(|line| line.contains("id=\"mine-1\""));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("method=GET path=/version status=200 duration_ms="),
        "{line}"
    );
    assert!(!log.contains("the cat"), "prompts are nobody else's: {log}");
}

fn chats(client: Client) {
    let whole = client.ask(
        CHAT,
        &chat(json!({"unheard_of": {"a": [1]}, "model": "tiny"})),
    );
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["model"], "tiny");
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    let usage = &whole["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    // Piece by piece it says the same.
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = client.post(CHAT, &chat(more));
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    let mut events = reply.events();
    let last = events.pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], usage["total_tokens"]);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let ids: BTreeSet<_> = events.iter().map(|e| e["id"].to_string()).collect();
    assert_eq!(ids.len(), 1);
    assert!(
        events
            .iter()
            .all(|e| e["object"] == "chat.completion.chunk" && e["usage"].is_null())
    );
    let text: String = events
        .iter()
        .filter_map(|e| e["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(json!(text), choice["message"]["content"]);
    let end = &events.last().unwrap()["choices"][0]["finish_reason"];
    assert_eq!(end, &choice["finish_reason"]);
    // Without a seed, answers differ; with one they do not, and several are told apart.
    let free = |seed: Value| {
        let more = json!({"seed": seed, "n": 2, "max_tokens": 24, "logprobs": true, "top_logprobs": 2,
            "ignore_eos": true});
        client.ask(CHAT, &chat(more))["choices"].clone()
    };
    assert_eq!(free(json!(3)), free(json!(3)));
    let (one, other) = (free(Value::Null), free(Value::Null));
    assert_ne!(one, other);
    assert_ne!(one[0]["message"], one[1]["message"]);
    let content = one[1]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 24);
    assert_eq!(content[5]["top_logprobs"].as_array().unwrap().len(), 2);
    // Streamed, the choices come with their own log-probabilities.
    let more = json!({"n": 2, "seed": 3, "stream": true, "logprobs": true, "max_tokens": 9, "ignore_eos": true});
    let mut counts = [0, 0];
    for event in client.post(CHAT, &chat(more)).events() {
        let choice = &event["choices"][0];
        let logprobs = choice["logprobs"]["content"].as_array();
        counts[choice["index"].as_u64().unwrap() as usize] += logprobs.map_or(0, Vec::len);
    }
    assert_eq!(counts, [9, 9]);
    // A beginning that was seen is not computed again.
    let text = "a beginning that is longer than a block of the cache ".repeat(2);
    let body = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 1});
    client.ask(CHAT, &body);
    let again = client.ask(CHAT, &body);
    let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() >= 16, "{again}");
}

fn completions(client: Client) {
    let ask = |body: Value| client.ask(TEXT, &body)["choices"].clone();
    let several = ask(json!({"prompt": ["a", "b"], "n": 2, "max_tokens": 2}));
    let indices: Vec<_> = several
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["index"].clone())
        .collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    let body = json!({"prompt": [[1, 2], [3]], "n": 2, "max_tokens": 3, "stream": true, "ignore_eos": true,
        "stream_options": {"include_usage": true}});
    let mut events = client.post(TEXT, &body).events();
    let usage = events.pop().unwrap()["usage"].clone();
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(3), &json!(12))
    );
    let ended = events
        .iter()
        .filter(|e| e["choices"][0]["finish_reason"] == "length");
    let ended: BTreeSet<_> = ended.map(|e| e["choices"][0]["index"].as_u64()).collect();
    assert_eq!(ended, (0..4).map(Some).collect());
    // Said first, and scored, whole and in pieces alike.
    let body = json!({"prompt": "a dog", "echo": true, "logprobs": 1, "max_tokens": 2, "temperature": 0,
        "ignore_eos": true});
    let echoed = ask(body.clone());
    assert!(echoed[0]["text"].as_str().unwrap().starts_with("a dog"));
    let logprobs = &echoed[0]["logprobs"];
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 7);
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert!(logprobs["token_logprobs"][1].as_f64().unwrap() < 0.0);
    let streamed = client
        .post(TEXT, &with(body.clone(), json!({"stream": true})))
        .events();
    let text: String = streamed
        .iter()
        .filter_map(|e| e["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(json!(text), echoed[0]["text"]);
    // Of one token there is nothing to score, and nothing was asked for.
    for prompt in [json!([5]), json!([5, 6])] {
        let plain = ask(json!({"prompt": prompt, "echo": true, "max_tokens": 1}));
        assert_eq!(plain[0]["logprobs"], Value::Null, "{prompt}");
    }
    let in_pieces = |streamed: &[Value], field: &str| {
        let pieces = streamed
            .iter()
            .filter_map(|e| e["choices"][0]["logprobs"][field].as_array());
        json!(pieces.flatten().collect::<Vec<_>>())
    };
    assert_eq!(in_pieces(&streamed, "text_offset"), logprobs["text_offset"]);
    // Tokens that are a part of a character.
    let body = with(
        body,
        json!({"prompt": "<|im_start|>é", "logprobs": 0, "max_tokens": 5,
        "logit_bias": {"240": 100}}),
    );
    let parts = &ask(body.clone())[0];
    let logprobs = &parts["logprobs"];
    assert_eq!(
        logprobs["text_offset"],
        json!([0, 12, 12, 13, 14, 15, 16, 17]),
        "{parts}"
    );
    let top = logprobs["top_logprobs"].as_array().unwrap();
    let own = logprobs["tokens"].as_array().unwrap();
    assert_eq!(own[1], "bytes:\\xc3");
    for (top, own) in top.iter().zip(own).skip(1) {
        let names: Vec<_> = top.as_object().unwrap().keys().collect();
        assert_eq!(names, [own.as_str().unwrap()]);
    }
    let streamed = client
        .post(TEXT, &with(body.clone(), json!({"stream": true})))
        .events();
    for field in ["tokens", "text_offset", "token_logprobs", "top_logprobs"] {
        assert_eq!(in_pieces(&streamed, field), logprobs[field], "{field}");
    }
    let body = with(body, json!({"prompt": "a dog", "logprobs": 1}));
    // Nothing but the prompt.
    let scored = ask(with(body, json!({"max_tokens": 0})));
    assert_eq!(scored[0]["text"], "a dog");
    assert_eq!(scored[0]["logprobs"]["tokens"].as_array().unwrap().len(), 5);
    // What is too long is cut, where that is asked for; only the end counts.
    let ids: Vec<usize> = (0..600).map(|i| 1 + i % 200).collect();
    let cut = |keep: i64| {
        let body =
            json!({"prompt": ids, "truncate_prompt_tokens": keep, "max_tokens": 1, "echo": true});
        client.ask(TEXT, &body)["usage"]["prompt_tokens"].clone()
    };
    assert_eq!((cut(3), cut(-1)), (json!(3), json!(511)));
    let plain = json!({"prompt": "a dog", "add_special_tokens": false, "max_tokens": 1});
    assert_eq!(client.ask(TEXT, &plain)["usage"]["prompt_tokens"], 5);
}

fn forms(client: Client) {
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let answer = client.ask(
        CHAT,
        &chat(json!({"response_format": format, "max_tokens": 60})),
    );
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(content).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert!(value["a"].is_boolean(), "{answer}");
    let compact = json!({"json": schema, "disable_any_whitespace": true});
    let answer = client.ask(
        CHAT,
        &chat(json!({"structured_outputs": compact, "max_tokens": 60})),
    );
    let content = &answer["choices"][0]["message"]["content"];
    assert!(
        content == "{\"a\":true}" || content == "{\"a\":false}",
        "{answer}"
    );
    let body = chat(json!({"structured_outputs": {"choice": ["yes", "no"]}, "stream": true}));
    let events = client.post(CHAT, &body).events();
    let text: String = events
        .iter()
        .filter_map(|e| e["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert!(["yes", "no"].contains(&text.as_str()), "{text}");
}

fn embeddings(client: Client) {
    let ask = |more: Value| {
        client.ask(
            "/v1/embeddings",
            &with(json!({"input": ["the cat", "a dog"]}), more),
        )
    };
    let whole = ask(json!({}));
    let vector = |place: usize| {
        whole["data"][place]["embedding"]
            .as_array()
            .unwrap()
            .clone()
    };
    let length: f64 = vector(0).iter().map(|v| v.as_f64().unwrap().powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-5);
    assert_ne!(vector(0), vector(1));
    assert_eq!(whole["usage"]["prompt_tokens"], 9);
    let coded = ask(json!({"encoding_format": "base64"}));
    let bytes = STANDARD
        .decode(coded["data"][1]["embedding"].as_str().unwrap())
        .unwrap();
    let numbers: Vec<f32> = bytes
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    let given: Vec<f32> = vector(1)
        .iter()
        .map(|v| v.as_f64().unwrap() as f32)
        .collect();
    assert_eq!(numbers, given);
    let short = ask(json!({"dimensions": 3}));
    assert_eq!(short["data"][0]["embedding"].as_array().unwrap().len(), 3);
    let ids = client.ask("/v1/embeddings", &json!({"input": [1, 2, 3]}));
    assert_eq!(ids["data"].as_array().unwrap().len(), 1);
}

fn tokens(client: Client) {
    let text = client.ask(
        "/tokenize",
        &json!({"prompt": "a dog", "return_token_strs": true}),
    );
    assert_eq!(text["count"], 5);
    assert_eq!(text["max_model_len"], 512);
    assert_eq!(
        text["token_strs"].as_array().unwrap().concat_texts(),
        "a dog"
    );
    let messages = json!([{"role": "user", "content": "the cat"}]);
    let chat = client.ask("/tokenize", &json!({"messages": messages}));
    assert!(chat["count"].as_u64() > text["count"].as_u64());
    assert_eq!(chat["token_strs"], Value::Null);
    // An answer begun stands at the end of its prompt.
    let begun = json!([messages[0], {"role": "assistant", "content": "a dog"}]);
    let mut body =
        json!({"messages": begun, "continue_final_message": true, "return_token_strs": true});
    let going_on = client.ask("/tokenize", &body);
    let opened = client.ask(
        "/tokenize",
        &json!({"messages": messages, "return_token_strs": true}),
    );
    let texts = |answer: &Value| answer["token_strs"].as_array().unwrap().concat_texts();
    assert_eq!(texts(&going_on), texts(&opened) + "a dog");
    body["max_tokens"] = json!(1);
    let usage = &client.ask(CHAT, &body)["usage"];
    assert_eq!(usage["prompt_tokens"], going_on["count"]);
    let form = json!({"type": "json_object"});
    for wrong in [
        json!({"add_generation_prompt": true}),
        json!({"messages": messages}),
        json!({"response_format": form}),
    ] {
        let mut wrong_body = body.clone();
        wrong_body
            .as_object_mut()
            .unwrap()
            .extend(wrong.as_object().unwrap().clone());
        assert_eq!(client.post(CHAT, &wrong_body).status, 400, "{wrong}");
    }
    let back = client.ask("/detokenize", &json!({"tokens": text["tokens"]}));
    assert_eq!(back, json!({"prompt": "a dog"}));
}

trait Concat {
    fn concat_texts(&self) -> String;
}

impl Concat for Vec<Value> {
    fn concat_texts(&self) -> String {
        self.iter().map(|text| text.as_str().unwrap()).collect()
    }
}

fn whats_there(client: Client) {
    let models = client.get("/v1/models").json();
    let model = &models["data"][0];
    assert_eq!(
        (&model["id"], &model["context_length"]),
        (&json!("tiny"), &json!(512))
    );
    assert_eq!(&client.get("/v1/models/tiny").json(), model);
    assert_eq!(
        client.get("/v1/models/a/b").error()["code"],
        "model_not_found"
    );
    assert_eq!(client.get("/health").json()["status"], "ok");
    let version = client.send("GET", "/version", "X-Request-Id: mine-1\r\n", "");
    assert_eq!(version.json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version.header("x-request-id"), Some("mine-1"));
    client.wait_until_free();
    let described = client.get("/openapi.json").json();
    let paths: Vec<_> = described["paths"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    for path in twoclock::serve::paths::PATHS {
        assert!(paths.iter().any(|p| p == path), "{path} is not described");
    }
}
