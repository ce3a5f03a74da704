//! What an operator offers: models by several names, a template of his own, keys and values as far as memory goes; and
//! what he is told where that does not go.

use std::fs;

use serde_json::json;

use crate::answers::chat;
use crate::scene::{Program, Unheard};

/// What a server that does not begin says.
fn refused(arguments: &[&str]) -> String {
    let (status, said) = Unheard::start_after(":", arguments).end();
    assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
    said
}

#[test]
fn a_model_is_asked_for_by_any_of_its_names() {
    let server = Program::start(&["-m", "first,second=./caller"]);
    let client = server.client;
    let listed = || {
        let data = client.get("/v1/models").json()["data"].clone();
        let of = |card: &serde_json::Value| (card["id"].clone(), card["loaded"].clone());
        data.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let are = |loaded: bool| {
        ["tiny", "first", "second"].map(|name| (json!(name), json!(loaded && name != "tiny")))
    };
    assert_eq!(listed(), are(false));
    let mut body = chat(json!({"max_tokens": 2}));
    for name in ["second", "first"] {
        body["model"] = json!(name);
        assert_eq!(client.ask("/v1/chat/completions", &body)["model"], "first");
    }
    assert_eq!(listed(), are(true));
    assert_eq!(client.get("/v1/models/second").json()["id"], "second");
    let metrics = client.get("/metrics").body;
    assert!(metrics.contains("model_name=\"first\"") && !metrics.contains("\"second\""));
    body["model"] = json!("third");
    let said = client.post("/v1/chat/completions", &body).error()["message"].to_string();
    assert!(said.contains("first") && said.contains("second"), "{said}");
    server.terminate();
    let (_, log) = server.end();
    assert_eq!(log.matches(" loaded model=").count(), 1, "{log}");
    for again in ["other,tiny=./caller", "other,other=./caller"] {
        let said = refused(&["-m", again]);
        assert!(said.contains("is named twice"), "{said}");
    }
}

#[test]
fn a_template_takes_the_place_of_the_models_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let fine = file("fine", "on {{ messages[0].content }} goes");
    let server = Program::start(&["--chat-template", &fine]);
    let tokens = |body| server.client.ask("/tokenize", &body)["tokens"].clone();
    let messages = json!([{"role": "user", "content": "the cat"}]);
    let plain = json!({"prompt": "on the cat goes", "add_special_tokens": false});
    assert_eq!(tokens(json!({"messages": messages})), tokens(plain));
    let wrong = file("wrong", "{% if %}");
    let its_own =
        format!("--chat-template {wrong}: the chat template is no template: syntax error");
    let nowhere = folder.path().join("nowhere").display().to_string();
    for (arguments, told) in [
        (&["--chat-template", &wrong][..], its_own.as_str()),
        (&["--chat-template", &nowhere], "nowhere cannot be read"),
        (
            &["--chat-template", &fine, "-m", "other=./caller"],
            "is for one model",
        ),
    ] {
        let said = refused(arguments);
        assert!(
            said.contains("--chat-template") && said.contains(told),
            "{said}"
        );
    }
}

#[test]
fn what_fits_is_said_and_does() {
    let arguments = ["--memory", "20", "--kv-cache-tokens"];
    let with = |tokens| [arguments[0], arguments[1], arguments[2], tokens];
    let said = refused(&with("1000000"));
    let (_, advised) = said.split_once(": --kv-cache-tokens ").unwrap();
    let (advised, rest) = advised.split_once(' ').unwrap();
    assert!(rest.starts_with("fits"), "{said}");
    assert!(advised.parse::<usize>().unwrap() > 4 * 512, "{said}");
    let server = Program::start(&with(advised));
    let told = format!("kv_cache_tokens={advised} ");
    assert!(server.said.contains(&told), "{}", server.said);
    assert!(server.said.contains("total_mib=20"), "{}", server.said);
}
