//! Fields by the names that other programs have for them, and those that ask for another answer than there is.

use serde_json::{Value, json};

use crate::answers::{CHAT, TEXT, chat};
use crate::scene::Client;

/// Whether what llama.cpp's clients send is heeded, and what nobody here can do is refused.
pub(crate) fn dialects(client: Client) {
    lengths(client);
    forms(client);
    let text = |more: Value| {
        let mut body = json!({"prompt": "a", "max_tokens": 1});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    // One that repeats nothing draws otherwise.
    let drawn = |more: Value| {
        let mut body = text(more);
        body["max_tokens"] = json!(40);
        body["temperature"] = json!(0);
        body["ignore_eos"] = json!(true);
        client.ask(TEXT, &body)["choices"][0]["text"].clone()
    };
    let plain = drawn(json!({}));
    let by_its_name = drawn(json!({"repetition_penalty": 1.8}));
    assert_ne!(plain, by_its_name);
    assert_eq!(drawn(json!({"repeat_penalty": 1.8})), by_its_name);
    assert_eq!(
        drawn(json!({"repetition_penalty": 1.8, "repeat_penalty": 1.0})),
        by_its_name
    );
    for (path, body, param) in [
        (
            CHAT,
            chat(json!({"modalities": ["text", "audio"]})),
            "modalities",
        ),
        (CHAT, chat(json!({"audio": {"voice": "a"}})), "audio"),
        (
            CHAT,
            chat(json!({"web_search_options": {}})),
            "web_search_options",
        ),
        (CHAT, chat(json!({"n_predict": "9"})), "n_predict"),
        (CHAT, chat(json!({"grammar": "root ::= \"a\""})), "grammar"),
        (CHAT, chat(json!({"json_schema": 5})), "json_schema"),
        (TEXT, text(json!({"grammar": "root ::= \"a\""})), "grammar"),
        (TEXT, text(json!({"repeat_penalty": "1"})), "repeat_penalty"),
        (TEXT, text(json!({"repeat_penalty": -1})), "repeat_penalty"),
        (
            TEXT,
            text(json!({"repetition_penalty": -1})),
            "repetition_penalty",
        ),
        (
            "/v1/responses",
            json!({"input": "a", "modalities": ["audio"]}),
            "modalities",
        ),
        (
            "/v1/responses",
            json!({"input": "a", "background": true}),
            "background",
        ),
    ] {
        let reply = client.post(path, &body);
        assert_eq!(
            (reply.status, &reply.error()["param"]),
            (400, &json!(param)),
            "{body}"
        );
    }
    let grammar = chat(json!({"grammar": "root ::= \"a\""}));
    let error = client.post(CHAT, &grammar).error();
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("structured_outputs.grammar")
    );
    client.ask(
        CHAT,
        &chat(json!({"modalities": ["text"], "store": true, "grammar": "", "n_predict": 1})),
    );
}

fn lengths(client: Client) {
    let drawn = |body: Value| {
        client.ask(TEXT, &body)["usage"]["completion_tokens"]
            .as_u64()
            .unwrap()
    };
    let of = |n: i64| json!({"prompt": [1, 2, 3], "ignore_eos": true, "n_predict": n});
    assert_eq!((drawn(of(3)), drawn(of(0))), (3, 0));
    // As much as the context of 512 holds.
    assert_eq!(drawn(of(-1)), 509);
    let mut both = of(9);
    both["max_tokens"] = json!(2);
    assert_eq!(drawn(both), 2);
}

fn forms(client: Client) {
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
        "additionalProperties": false});
    for form in [
        json!({"json_schema": schema}),
        json!({"response_format": {"type": "json_object", "schema": schema}}),
        json!({"guided_json": schema}),
    ] {
        let mut body = chat(form);
        body["max_tokens"] = json!(60);
        let answer = client.ask(CHAT, &body);
        let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
        let value: Value =
            serde_json::from_str(content).unwrap_or_else(|e| panic!("{e}: {answer}"));
        assert!(value["a"].is_boolean(), "{answer}");
    }
}
