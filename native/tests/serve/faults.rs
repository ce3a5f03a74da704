//! What is wrong with a request, in OpenAI's shape, by the name of its field.

use serde_json::json;

use crate::answers::{CHAT, TEXT, chat};
use crate::scene::{Client, JSON, Program};

#[test]
fn a_model_without_a_template_says_so_to_programs() {
    let untaught = "sed -i s/chat_template/other/ model/tokenizer_config.json";
    let mut server = Program::start_after(untaught, &[]);
    let reply = server.client.post(CHAT, &chat(json!({})));
    let error = reply.error();
    assert_eq!(
        (reply.status, &error["param"], &error["code"]),
        (400, &json!("messages"), &json!("no_chat_template"))
    );
    server.hear("error=\"no_chat_template\" param=\"messages\"");
}

/// Every fault there is a name for.
pub(crate) fn faults(client: Client) {
    for (path, body, param) in [
        (CHAT, chat(json!({"temperature": "hot"})), "temperature"),
        (CHAT, chat(json!({"top_p": -1})), "top_p"),
        (CHAT, chat(json!({"messages": []})), "messages"),
        (
            CHAT,
            chat(json!({"messages": [{"role": "cat", "content": ""}]})),
            "messages",
        ),
        (
            CHAT,
            chat(json!({"response_format": {"type": "xml"}})),
            "response_format.type",
        ),
        (
            CHAT,
            chat(json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}})),
            "response_format.json_schema.schema",
        ),
        (
            CHAT,
            chat(json!({"response_format": "json"})),
            "response_format",
        ),
        (
            CHAT,
            chat(json!({"structured_outputs": {"choice": "yes"}})),
            "structured_outputs.choice",
        ),
        (
            CHAT,
            chat(json!({"structured_outputs": {"regex": "("}})),
            "structured_outputs.regex",
        ),
        (CHAT, chat(json!({"top_logprobs": 3})), "top_logprobs"),
        (CHAT, chat(json!({"stream": "yes"})), "stream"),
        (
            CHAT,
            chat(json!({"stream_options": {"include_usage": 1}})),
            "stream_options.include_usage",
        ),
        (
            CHAT,
            chat(json!({"stream": true, "prompt_logprobs": 1})),
            "prompt_logprobs",
        ),
        (CHAT, chat(json!({"echo": true})), "echo"),
        (CHAT, chat(json!({"model": 5})), "model"),
        (TEXT, json!({}), "prompt"),
        (TEXT, json!({"prompt": [1, 320]}), "prompt"),
        (
            TEXT,
            json!({"prompt": "a", "truncate_prompt_tokens": 0}),
            "truncate_prompt_tokens",
        ),
        (TEXT, json!({"prompt": "a", "n": 2000}), "n"),
        (TEXT, json!({"prompt": "a".repeat(512 * 128 + 1)}), "prompt"),
        ("/v1/embeddings", json!({"input": ""}), "input"),
        (
            "/v1/embeddings",
            json!({"input": "a", "dimensions": 1000}),
            "dimensions",
        ),
        (
            "/v1/embeddings",
            json!({"input": "a", "cache_salt": "a".repeat(1025)}),
            "cache_salt",
        ),
        ("/v1/embeddings", json!({"input": vec![1; 600]}), "input"),
        ("/tokenize", json!({"prompt": 1}), "prompt"),
        ("/detokenize", json!({"tokens": [999]}), "tokens"),
        ("/detokenize", json!({}), "tokens"),
    ] {
        let reply = client.post(path, &body);
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        let error = reply.error();
        assert_eq!(
            (&error["param"], &error["type"]),
            (&json!(param), &json!("invalid_request_error"))
        );
    }
    // What is frequent has a name of its own, which the log has too.
    let parts = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (path, body, code) in [
        (
            CHAT,
            chat(json!({"messages": [{"role": "user", "content": parts}]})),
            "not_text",
        ),
        (CHAT, chat(json!({"tools": [tool]})), "tools_not_taught"),
        (
            TEXT,
            json!({"prompt": "a".repeat(512 * 128 + 1)}),
            "text_too_long",
        ),
    ] {
        let reply = client.post(path, &body);
        assert_eq!((reply.status, &reply.error()["code"]), (400, &json!(code)));
    }
    // Also where it is to be streamed, and with the numbers.
    for stream in [false, true] {
        let reply = client.post(TEXT, &json!({"prompt": vec![7; 600], "stream": stream}));
        let error = reply.error();
        assert_eq!(
            (reply.status, &error["code"]),
            (400, &json!("context_length_exceeded"))
        );
        let said = error["message"].as_str().unwrap();
        assert!(
            said.contains("600 tokens") && said.ends_with("512: shorten the prompt"),
            "{said}"
        );
    }
    let send = |method: &str, path: &str, headers: &str, body: &str| {
        let reply = client.send(method, path, headers, body);
        let code = reply.error()["code"].clone();
        (reply.status, code, reply)
    };
    let code = |code: &str| json!(code);
    for body in ["", "{", "nonsense", "\u{0}"] {
        let (status, said, _) = send("POST", CHAT, JSON, body);
        assert_eq!((status, said), (400, code("invalid_json")), "{body:?}");
    }
    assert_eq!(send("POST", CHAT, JSON, "[]").0, 400);
    assert_eq!(
        send("POST", CHAT, "Content-Type: text/plain\r\n", "{}").0,
        415
    );
    assert_eq!(send("POST", CHAT, "", "{}").0, 415);
    // Nothing is unpacked.
    for coding in [
        "gzip",
        "identity, br",
        "identity\r\nContent-Encoding: zstd",
        "\u{e9}",
    ] {
        let headers = format!("{JSON}Content-Encoding: {coding}\r\n");
        for path in [CHAT, "/v1/embeddings", "/tokenize"] {
            let (status, said, reply) = send("POST", path, &headers, "{}");
            assert_eq!(
                (status, said),
                (415, code("unsupported_content_encoding")),
                "{coding}"
            );
            assert_eq!(reply.header("accept-encoding"), Some("identity"));
        }
        let reply = client.send("POST", "/v1/messages", &headers, "{}");
        assert_eq!(
            (reply.status, &*reply.message_error()),
            (415, "invalid_request_error")
        );
    }
    for coding in ["identity", "Identity, identity", ""] {
        let headers = format!("{JSON}Content-Encoding: {coding}\r\n");
        let body = json!({"prompt": "a"}).to_string();
        assert_eq!(
            client.send("POST", "/tokenize", &headers, &body).status,
            200
        );
    }
    for path in ["/v1/models/%ff", "/v1/models/a/%c3", "/v1/models/%"] {
        let reply = client.get(path);
        let param = reply.error()["param"].clone();
        assert_eq!(param, "model", "{path}: {reply:?}");
    }
    assert_eq!(client.get("/v1/models/%ff").status, 400);
    let (status, said, _) = send("POST", "/nowhere", JSON, "{}");
    assert_eq!((status, said), (404, code("unknown_path")));
    let (status, said, reply) = send("GET", CHAT, "", "");
    assert_eq!((status, said), (405, code("wrong_method")));
    assert_eq!(reply.header("allow"), Some("POST"));
    // However long a path is, little of it is said again.
    let name = "a".repeat(9000);
    for (method, path, expected) in [
        ("POST", format!("/v1/models/{name}"), 405),
        ("GET", format!("/v1/models/{name}"), 404),
        ("GET", format!("/{name}"), 404),
    ] {
        let (status, _, reply) = send(method, &path, JSON, "{}");
        assert_eq!(status, expected);
        let said = reply.body.matches('a').count();
        assert!((180..300).contains(&said), "{reply:?}");
    }
    let (status, said, _) = send(
        "POST",
        CHAT,
        JSON,
        &chat(json!({"model": "other"})).to_string(),
    );
    assert_eq!((status, said), (404, code("model_not_found")));
}
