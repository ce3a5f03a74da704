//! The commands between text and tokens: what they print, to the byte, and what they refuse.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(path)
}

fn twoclock(arguments: &[&str], model: &Path, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .env("TWOCLOCK_HOME", "no-such-folder")
        .args(arguments)
        .arg(model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may refuse before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn printed(arguments: &[&str], model: &Path, input: &[u8]) -> String {
    let output = twoclock(arguments, model, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit status 1, nothing on standard output, and one line that says why.
fn refused(arguments: &[&str], model: &Path, input: &[u8], because: &str) {
    let output = twoclock(arguments, model, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(because), "{said:?} lacks {because:?}");
}

#[test]
fn every_kind_of_file_gives_the_same_ids() {
    let expected: Value =
        serde_json::from_slice(&std::fs::read(golden("tokenizer/expected.json")).unwrap()).unwrap();
    for model in ["gguf/Q4_0.gguf", "tokenizer", "tokenizer/tokenizer.json"] {
        let model = golden(model);
        for case in expected["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids: Vec<String> = case["ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(Value::to_string)
                .collect();
            let ids = ids.join(" ");
            let given = printed(&["tokenize", "--no-bos", "-m"], &model, text.as_bytes());
            assert_eq!(given, format!("{ids}\n"), "{}: {text:?}", model.display());
            let back = printed(&["detokenize", "-m"], &model, ids.as_bytes());
            assert_eq!(back, text, "{}", model.display());
        }
    }
}

#[test]
fn a_vocabulary_alone_is_enough() {
    let model = golden("tokenizer_suites/llama-spm.gguf");
    let tokenize = |options: &[&str], text: &str| {
        let arguments: Vec<_> = ["tokenize"]
            .iter()
            .chain(options)
            .chain(&["-m"])
            .copied()
            .collect();
        printed(&arguments, &model, text.as_bytes())
    };
    assert_eq!(tokenize(&[], "Hello"), "1 15043\n");
    assert_eq!(tokenize(&["--no-bos"], "Hello"), "15043\n");
    assert_eq!(tokenize(&["--no-bos"], "Hello\n"), "15043 13\n");
    assert_eq!(tokenize(&["--no-bos"], ""), "\n");
    assert_eq!(tokenize(&["--no-bos"], "</s>"), "2\n");
    let plain = tokenize(&["--no-bos", "--no-special"], "</s>");
    assert!(plain.split_whitespace().count() > 1, "{plain}");
    let json: Value = serde_json::from_str(&tokenize(&["--json"], "Hello\n")).unwrap();
    assert_eq!(
        json,
        json!({"ids": [1, 15043, 13], "tokens": ["<s>", " Hello", "\n"]})
    );

    assert_eq!(
        printed(&["detokenize", "-m"], &model, b"15043,\n 13"),
        "Hello\n"
    );
    let json = printed(&["detokenize", "--json", "-m"], &model, b"15043 13");
    assert_eq!(json, "{\"text\":\"Hello\\n\"}\n");
    assert_eq!(printed(&["detokenize", "-m"], &model, b""), "");
    refused(
        &["detokenize", "-m"],
        &model,
        b"5 32000",
        "token id 32000 is not in the vocabulary of 32000",
    );
    refused(
        &["detokenize", "-m"],
        &model,
        b"5 -1",
        "\"-1\", number 2 on standard input",
    );
    refused(
        &["detokenize", "-m"],
        &model,
        b"5 \xff",
        "standard input cannot be read: invalid utf-8",
    );
    refused(&["tokenize", "-m"], &model, b"a\xc3", "from index 1");
}

#[test]
fn a_template_is_rendered_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("t.jinja");
    std::fs::write(
        &template,
        "{% if not messages %}{{ raise_exception('Say something') }}{% endif %}{{ bos_token }}{{ messages[0].content }}|{{ x }}|{{ strftime_now('%d %B %Y') }}{% if add_generation_prompt %}|go{% endif %}\n\n\n",
    )
    .unwrap();
    let render = |input: &str| printed(&["render", "--template"], &template, input.as_bytes());
    assert_eq!(
        render(
            r#"{"messages": [{"content": "Hi"}], "x": 2, "bos_token": "<b>", "strftime_now": "2025-01-15T12:30:45", "add_generation_prompt": true}"#
        ),
        "<b>Hi|2|15 January 2025|go\n"
    );
    assert_eq!(
        render(r#"{"messages": [{"content": "Hi"}], "strftime_now": "2025-01-15"}"#),
        "Hi||15 January 2025\n"
    );
    for (input, because) in [
        (r#"{"messages": []}"#, "Say something"),
        ("[]", "standard input is no JSON object"),
        (r#"{"messages": [}"#, "standard input is no JSON object"),
        (r#"{"x": 1}"#, "messages is null, but it must be a list"),
        (
            r#"{"messages": [], "add_generation_prompt": 1}"#,
            "add_generation_prompt is 1",
        ),
        (
            r#"{"messages": [], "strftime_now": "soon"}"#,
            "strftime_now is \"soon\"",
        ),
    ] {
        refused(
            &["render", "--template"],
            &template,
            input.as_bytes(),
            because,
        );
    }
    std::fs::write(&template, "{% if %}").unwrap();
    refused(
        &["render", "--template"],
        &template,
        b"{\"messages\": []}",
        "is no template",
    );
    let missing = folder.path().join("none.jinja");
    refused(
        &["render", "--template"],
        &missing,
        b"{\"messages\": []}",
        "none.jinja cannot be read",
    );
}

#[test]
fn the_template_of_a_model_knows_its_tokens() {
    let expected: Value =
        serde_json::from_slice(&std::fs::read(golden("tokenizer/expected.json")).unwrap()).unwrap();
    let chat = &expected["chat"];
    let input = json!({"messages": chat["messages"], "add_generation_prompt": true}).to_string();
    for model in ["tokenizer", "gguf/Q4_0.gguf"] {
        let text = printed(&["render", "-m"], &golden(model), input.as_bytes());
        assert_eq!(text, chat["text"].as_str().unwrap(), "{model}");
    }
    let none = golden("tokenizer_suites/llama-spm.gguf");
    refused(
        &["render", "-m"],
        &none,
        input.as_bytes(),
        "no chat template",
    );
    // The model's own tokens, unless others are given.
    let folder = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden("tokenizer").join(file), folder.path().join(file)).unwrap();
    }
    std::fs::write(
        folder.path().join("chat_template.jinja"),
        "{{ bos_token }}{{ eos_token }}",
    )
    .unwrap();
    let text = printed(&["render", "-m"], folder.path(), b"{\"messages\": []}");
    assert!(
        text.contains("<|im_end|>") || text.contains("<|endoftext|>"),
        "{text}"
    );
    let given = printed(
        &["render", "-m"],
        folder.path(),
        br#"{"messages": [], "bos_token": "[", "eos_token": "]"}"#,
    );
    assert_eq!(given, "[]");
}
