//! A model and files of requests for the program, and what came out. Tests nothing itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A folder with a model of random weights, a tokenizer and a template.
pub(crate) fn scene() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    fs::create_dir(home.path().join("model")).unwrap();
    for file in [
        "models/qwen2/config.json",
        "models/qwen2/model.safetensors",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ] {
        let from = golden.join(file);
        let to = home.path().join("model").join(from.file_name().unwrap());
        fs::copy(from, to).unwrap();
    }
    home
}

/// The command over `in.jsonl` of this folder.
pub(crate) fn batch(home: &Path, output: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twoclock"));
    command
        .env("TWOCLOCK_HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .args([
            "batch", "-m", "./model", "--device", "cpu", "in.jsonl", output,
        ])
        .args(arguments);
    command
}

/// Writes `in.jsonl`.
pub(crate) fn requests(home: &Path, lines: &[Value]) {
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(home.join("in.jsonl"), text.concat()).unwrap();
}

/// A line.
pub(crate) fn request(id: &str, url: &str, body: Value) -> Value {
    json!({"custom_id": id, "method": "POST", "url": url, "body": body})
}

/// A line that goes on with a short chat, unless `body` says otherwise.
pub(crate) fn chat(id: &str, body: Value) -> Value {
    let mut whole = json!({"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 6});
    for (name, value) in body.as_object().unwrap() {
        whole[name] = value.clone();
    }
    request(id, "/v1/chat/completions", whole)
}

/// By custom id: the response of every line, each of which is whole and alone.
pub(crate) fn answers(path: PathBuf) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut answers = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["error"].is_null());
        let id = line["custom_id"].as_str().unwrap().to_owned();
        assert!(answers.insert(id, line["response"].clone()).is_none());
    }
    answers
}

/// What a run printed, which must have succeeded.
pub(crate) fn succeeded(output: Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}
