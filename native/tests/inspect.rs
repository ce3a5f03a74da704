//! `inspect` on the golden checkpoints, as the program shows it, and on folders that are none.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use twoclock_core::runner::ComputeDtype;

fn inspect(model: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .args(["inspect", "--model"])
        .arg(model)
        .args(arguments)
        .output()
        .unwrap()
}

fn golden(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(path)
}

#[test]
fn says_what_a_folder_and_a_file_hold() {
    for (path, format, dtype) in [
        ("models/llama", "safetensors (2 files)", "BF16"),
        ("gguf/Q4_1.gguf", "GGUF v3", "Q4_1"),
    ] {
        let shown = inspect(&golden(path), &["--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["format"], format);
        assert_eq!(shown["architecture"], "llama");
        assert_eq!(shown["dtypes"][0]["dtype"], dtype);
        let bytes = |list: &Value| -> u64 {
            let list = list.as_array().unwrap();
            list.iter()
                .map(|item| item["bytes"].as_u64().unwrap())
                .sum()
        };
        assert_eq!(bytes(&shown["dtypes"]), bytes(&shown["tensors"]));
        let config = &shown["config"];
        let table = shown["tensors"].as_array().unwrap();
        let table = table
            .iter()
            .find(|t| t["name"] == "model.embed_tokens.weight");
        let shape = json!([config["vocab_size"], config["hidden_size"]]);
        assert_eq!(table.unwrap()["shape"], shape);

        let text = inspect(&golden(path), &[]).stdout;
        assert!(String::from_utf8(text).unwrap().contains(format));
    }
}

#[test]
fn counts_in_every_class() {
    for name in ComputeDtype::NAMES.split('|') {
        let arguments = ["--json", "--compute-dtype", name];
        let shown = inspect(&golden("gguf/Q4_1.gguf"), &arguments).stdout;
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        let class = if name == "auto" { "f16" } else { name };
        assert_eq!(shown["memory"]["compute_dtype"], class, "{shown}");
    }
}

#[test]
fn says_what_is_widened_on_a_device_and_by_how_much() {
    let shown = inspect(&golden("gguf/Q4_K_M.gguf"), &["--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let shares = shown["dtypes"].as_array().unwrap();
    let q4 = shares.iter().find(|s| s["dtype"] == "Q4_K").unwrap();
    assert_eq!(q4["device_dtype"], "Q4_K");
    let (bytes, device) = (&q4["bytes"], &q4["device_bytes"]);
    let ratio = device.as_f64().unwrap() / bytes.as_f64().unwrap();
    assert!((1.02..1.04).contains(&ratio), "{ratio}");
    assert_eq!(q4["widened"], ratio);
    let memory = &shown["memory"];
    let parts = ["weights", "kv_cache", "workspace"].map(|key| memory[key].as_u64().unwrap());
    assert_eq!(memory["total"], parts.iter().sum::<u64>());
    let text = inspect(&golden("gguf/Q4_K_M.gguf"), &[]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("(1.028 ×)") && text.contains("workspace"),
        "{text}"
    );

    let folder = golden("models/llama");
    let shown = inspect(&folder, &["--json", "--quantize", "q4_0"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["dtypes"][0]["dtype"], "BF16");
    assert_eq!(shown["dtypes"][0]["device_dtype"], "Q4_0");
    assert_eq!(shown["dtypes"][0]["widened"], 18.0 / 64.0);
    let refused = inspect(&golden("gguf/Q4_1.gguf"), &["--quantize", "q8_0"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("Q4_1 already"), "{said}");
}

/// A head of 16 dims takes 18 bytes as int8: 16 codes and a scale.
#[test]
fn says_what_a_token_takes_in_the_cache() {
    let model = golden("models/llama");
    let token = |arguments: &[&str]| {
        let shown = inspect(&model, &[&["--json"], arguments].concat());
        let memory = serde_json::from_slice::<Value>(&shown.stdout).unwrap()["memory"].take();
        let bytes = memory["kv_token_bytes"].as_u64().unwrap();
        (memory["kv_cache_dtype"].clone(), bytes)
    };
    // As on a GPU; the exact class has exact pages.
    assert_eq!(token(&[]).0, "f16");
    let (auto, bytes) = token(&["--compute-dtype", "f32"]);
    assert_eq!(auto, "f32");
    let of_rows = |row: u64| bytes * row / (4 * 16);
    for (name, row) in [("f32", 4 * 16), ("f16", 2 * 16), ("int8", 16 + 2)] {
        let shown = token(&["--kv-cache-dtype", name]);
        assert_eq!(shown, (name.into(), of_rows(row)));
    }
    let refused = inspect(&model, &["--kv-cache-dtype", "q4"]);
    assert!(!refused.status.success());
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("give auto, f16, f32 or int8"), "{why}");
}

#[test]
fn a_bad_model_is_one_sentence_and_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |path: &Path, word: &str| {
        let output = inspect(path, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(word), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refuse(&folder.path().join("nothing"), "twoclock list");
    refuse(folder.path(), "config.json");

    let file = folder.path().join("model.gguf");
    fs::write(&file, b"").unwrap();
    refuse(&file, "model.gguf");
    let whole = fs::read(golden("gguf/Q4_1.gguf")).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    refuse(&file, "model.gguf");
}

#[test]
fn a_folder_may_not_name_files_outside_it() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("model");
    fs::create_dir(&inner).unwrap();
    for entry in fs::read_dir(golden("models/llama")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        // The shards lie outside, and the index says so.
        let shard = name.to_str().unwrap().ends_with(".safetensors");
        let folder = if shard { outer.path() } else { &inner };
        fs::copy(entry.path(), folder.join(&name)).unwrap();
    }
    let index = inner.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"model-", "\"../model-")).unwrap();
    let output = inspect(&inner, &[]);
    assert!(!output.status.success());
}
