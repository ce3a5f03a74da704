//! The program `twoclock bench`: figures of small models, and what it refuses. The figures themselves are
//! the machine's; here they are there, and possible.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/Q4_0.gguf")
}

/// Runs the program; gives its standard output or error.
fn bench(arguments: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .env("TWOCLOCK_HOME", home.path())
        .arg("bench")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

fn figures(arguments: &[&str]) -> Value {
    let text = bench(&[arguments, &["--json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Keys that are promised, less those a machine may not know.
const POSITIVE: [&str; 14] = [
    "prefill_tok_s",
    "decode_tok_s",
    "parallel_tok_s",
    "load_s",
    "gpu_bytes",
    "weight_bytes",
    "file_bytes",
    "peak_rss_bytes",
    "dispatches_per_layer",
    "submits_per_token",
    "readback_bytes_per_token",
    "bandwidth_fraction",
    "flops_fraction",
    "best_gemv_fraction",
];

fn number(figures: &Value, key: &str) -> f64 {
    let value = &figures[key];
    value.as_f64().unwrap_or_else(|| panic!("{key} is {value}"))
}

#[test]
fn figures_of_a_file() {
    let model = model();
    let sizes = ["--prompt", "20", "--tokens", "8", "--parallel", "2"];
    let model = ["-m", model.to_str().unwrap()];
    let figures = figures(&[&model[..], &sizes].concat());
    for key in POSITIVE {
        let found = number(&figures, key);
        assert!(found > 0.0, "{key} is {found}");
        if key.ends_with("fraction") {
            assert!(found < 1.5, "{key} is {found}");
        }
    }
    let cold = number(&figures, "first_token_cold_s");
    assert!(cold > 0.0 && number(&figures, "first_token_warm_s") > 0.0);
    assert_eq!(number(&figures, "submits_per_token"), 1.0);
    assert!(number(&figures, "readback_bytes_per_token") <= 64.0);
    assert!(number(&figures, "weight_bytes") <= 1.1 * number(&figures, "file_bytes"));
    assert!(number(&figures, "gpu_bytes") > number(&figures, "weight_bytes"));
    let products = figures["ceilings"]["gemv"].as_array().unwrap();
    assert!(products.iter().any(|product| product["rows"] == 512));
}

#[test]
fn figures_of_random_weights_and_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let shape = folder.path().join("config.json");
    std::fs::write(
        &shape,
        r#"{"model_type": "qwen3", "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 512,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 64}"#,
    )
    .unwrap();
    let plot = folder.path().join("roof.svg");
    let figures = figures(&[
        "--load-format",
        "dummy",
        "--model-config",
        shape.to_str().unwrap(),
        "--weight-format",
        "q8_0",
        "--prompt",
        "70",
        "--tokens",
        "6",
        "--parallel",
        "1",
        "--no-first-token",
        "--plot",
        plot.to_str().unwrap(),
    ]);
    for key in POSITIVE.iter().filter(|key| **key != "parallel_tok_s") {
        assert!(number(&figures, key) > 0.0, "{key}");
    }
    assert!(figures["parallel_tok_s"].is_null() && figures["first_token_cold_s"].is_null());
    let layer = number(&figures, "dispatches_per_layer");
    assert_eq!(layer, layer.round(), "all layers are alike");
    assert!(3.0 * layer < number(&figures, "dispatches_per_token"));
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.contains("prefill of 70 tokens"));
}

/// What is for GPU hosts, with a model that a software driver can bear.
#[cfg(unix)]
#[test]
fn the_report_of_a_host_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu-report.sh");
    let output = Command::new("bash")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_twoclock"))
        .arg(folder.path())
        .env("TWOCLOCK_REPORT_SMALL", "1")
        .output()
        .unwrap();
    let page = std::fs::read_to_string(folder.path().join("report.txt")).unwrap();
    assert!(output.status.success(), "{page}");
    let json = std::fs::read(folder.path().join("report.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["selftest"]["passed"], true, "{page}");
    let parts = json["parts"].as_array().unwrap();
    assert!(parts.len() == 3 && parts.iter().all(|part| part["status"] == 0));
    let bench = &json["bench"];
    for (list, most) in [("prefill", 2), ("parallel", 2)] {
        let rates = bench[list].as_array().unwrap();
        assert_eq!(rates.len(), most);
        assert!(rates.iter().all(|rate| number(rate, "tok_s") > 0.0));
    }
    assert!(number(&bench["ceilings"], "dispatch_s") > 0.0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |arguments: &[&str], because: &str| {
        let said = bench(arguments).unwrap_err();
        assert!(said.contains(because), "{said}");
    };
    let file = model();
    let file = file.to_str().unwrap();
    refused(&[], "--model");
    refused(&["-m", file, "--parallel", "0"], "--parallel");
    refused(&["-m", file, "--tokens", "1"], "--tokens");
    refused(&["-m", file, "--load-format", "dummy"], "--model-config");
    refused(&["-m", file, "--prompt", "5000"], "was made for 512");
    refused(&["-m", file, "--plot", "roof.txt"], ".svg");
    let shape = ["--model-config", "llama-4"];
    refused(&shape, "llama-3-8b, qwen3-4b");
    let format = ["--model-config", "llama-3-8b", "--weight-format", "q9"];
    refused(&format, "iq4_xs");
    let little = ["--model-config", "llama-3-8b", "--memory", "100"];
    refused(&little, "does not fit");
}

/// Shapes that somebody wrote by hand.
#[test]
fn shapes_written_by_hand_are_measured_or_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let run = |changes: &[(&str, Value)]| {
        let mut config = serde_json::json!({
            "model_type": "qwen3_moe", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 64,
            "num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 32,
        });
        for (field, value) in changes {
            config[*field] = value.clone();
        }
        std::fs::write(&path, config.to_string()).unwrap();
        let least = ["--no-first-token", "--prompt", "8", "--tokens", "2"];
        bench(&[&["--model-config", path.to_str().unwrap()], &least[..]].concat())
    };
    let refused = |changes: &[(&str, Value)], because: &str| {
        let said = run(changes).unwrap_err();
        assert!(said.contains(because), "{said}");
        assert!(!said.contains("download"), "{said}");
    };
    let many = Value::from(1024);
    let experts = [("num_experts", many.clone()), ("num_hidden_layers", many)];
    refused(&experts, "1024 in each of 1024 layers");
    refused(&[("hidden_size", Value::Null)], "hidden_size is missing");
    // The least there can be is no fault.
    run(&[("vocab_size", 1.into())]).unwrap();
}

#[cfg(unix)]
#[test]
fn nothing_is_measured_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = model();
    // The runtime would put a device in the place of what is closed.
    let mut closed = Command::new("sh");
    closed.args([
        "-c",
        "exec \"$0\" \"$@\" >&-",
        env!("CARGO_BIN_EXE_twoclock"),
    ]);
    closed.args(["bench", "--json", "-m"]).arg(&file);
    closed.env("TWOCLOCK_HOME", folder.path());
    let output = closed.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("closed before the program began"), "{said}");

    let pipe = folder.path().join("roof.svg");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let said = bench(&[
        "-m",
        file.to_str().unwrap(),
        "--plot",
        pipe.to_str().unwrap(),
    ]);
    assert!(said.unwrap_err().contains("no regular file"));
}
