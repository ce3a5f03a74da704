//! The program `twoclock simulate`: its files, its refusals, and what it leaves where it fails. Knows no
//! figures.

use twoclock::picture;

/// Runs the program; gives its standard output or error.
fn twoclock(args: &[&str]) -> (bool, String) {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_twoclock"));
    let mut program = program;
    let folder = tempfile::tempdir().unwrap();
    let output = program
        .arg("simulate")
        .args(args)
        .env("TWOCLOCK_HOME", folder.path())
        .output()
        .unwrap();
    let (fine, text) = match output.status.success() {
        true => (true, output.stdout),
        false => (false, output.stderr),
    };
    (fine, String::from_utf8(text).unwrap())
}

#[test]
fn the_program_serves_files_and_refuses_what_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let lines: String = (0..20)
        .map(|i| format!("{{\"arrival_s\": {i}, \"prompt_tokens\": 50, \"output_tokens\": 8}}\n"))
        .collect();
    let trace = write("trace.jsonl", &lines);
    let model = write(
        "config.json",
        r#"{"model_type": "llama", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024,
            "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}"#,
    );
    let svg = folder.path().join("a.svg");
    let args = [
        "--model",
        &model,
        "--trace",
        &trace,
        "--policy",
        "ridge,static",
        "--json",
    ];
    let (fine, text) = twoclock(&[&args[..], &["--plot", svg.to_str().unwrap()]].concat());
    assert!(fine, "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["runs"][1]["requests"], 20);
    assert!(json["runs"][0]["ttft"]["p99"].as_f64().unwrap() > 0.0);
    assert!(svg.metadata().unwrap().len() > 10_000);
    // All at once: no rate is known, and none can be had.
    let at_once = write(
        "at_once.jsonl",
        &lines
            .lines()
            .next()
            .unwrap()
            .repeat(3)
            .replace("}{", "}\n{"),
    );
    let at_once = [
        "--model", &model, "--trace", &at_once, "--policy", "ridge", "--json",
    ];
    let (fine, text) = twoclock(&at_once);
    assert!(fine, "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["runs"][0]["offered_rate"].is_null(), "{json}");
    let (fine, text) = twoclock(&[&at_once[..], &["--sweep-rates", "1,2"]].concat());
    assert!(!fine && text.contains("all at once"), "{text}");
    let windowed = write(
        "windowed.json",
        r#"{"model_type": "mistral", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024,
            "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
            "sliding_window": 64}"#,
    );
    let (fine, text) = twoclock(&["--model", &windowed, "--block-size", "0"]);
    assert!(!fine && text.contains("--block-size"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    let device = write(
        "device.json",
        r#"{"bandwidth": 1e12, "flops": 2e14, "step_overhead": 0, "dispatch_overhead": 0,
            "memory": 4.8e10, "host_bandwidth": 1e10}"#,
    );
    let few = [
        "--trace",
        &trace,
        "--hardware",
        &device,
        "--tpot-slo-ms",
        "90",
    ];
    let (fine, text) = twoclock(&few);
    assert!(
        fine && text.contains("100.0%") && text.contains("vllm-2023"),
        "{text}"
    );
    let no_device = write(
        "no-device.json",
        "{\"bandwidth\": 1e12, \"flops\": \"fast\"}",
    );
    let array = write("array.json", "[{\"arrival_s\": 0}]");
    let csv = write("trace.csv", "arrival_s,prompt_tokens\n0,5\n");
    let broken = write("broken.jsonl", &format!("{lines}{{}}\n"));
    for (args, words) in [
        (["--trace", broken.as_str()], "line 21"),
        (["--trace", array.as_str()], "one JSON object a line"),
        (["--trace", csv.as_str()], "one JSON object a line"),
        (
            ["--hardware", no_device.as_str()],
            "flops is \"fast\"; it must be a number",
        ),
        (
            ["--plot", "/nonexistent/a.svg"],
            "/nonexistent/a.svg cannot be written",
        ),
        (["--trace", "nothing"], "azure-like"),
        (["--hardware", "h900"], "m3max"),
        (["--model", "llama-3-70b"], "--weight-bits"),
        (["--policy", "best"], "orca-oracle"),
        (["--rate", "0"], "above 0"),
        (["--requests", "0"], "no request"),
        (["--block-size", "7"], "--block-size is 7"),
        (["--max-model-len", "0"], "--max-model-len is 0"),
        (["--plot", "a.jpg"], ".png"),
    ] {
        let (fine, text) = twoclock(&args);
        assert!(!fine && text.contains(words), "{args:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
        assert!(
            text.matches("line ").count() <= 1 && !text.contains("expected"),
            "{text}"
        );
    }
    let longest = usize::MAX.to_string();
    let (fine, text) = twoclock(&["--max-model-len", &longest, "--block-size", "1"]);
    assert!(!fine && text.contains("--block-size"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn a_plot_is_checked_before_and_loses_no_table_after() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.SVG");
    picture::check(&path).unwrap();
    assert!(!path.exists(), "a check leaves nothing");
    std::fs::write(&path, "before").unwrap();
    picture::check(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    for bad in ["a.jpg", "svg", "nowhere/a.png"] {
        picture::check(&folder.path().join(bad)).unwrap_err();
    }
    let folder_of_that_name = folder.path().join("b.png");
    std::fs::create_dir(&folder_of_that_name).unwrap();
    picture::check(&folder_of_that_name).unwrap_err();
}

/// A file that opens and takes nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_takes_the_plot_and_leaves_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.svg");
    // No file may grow beyond a block or two, as on a disk that is full.
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_twoclock"))
        .args(["simulate", "--requests", "5", "--plot"])
        .arg(&path)
        .env("TWOCLOCK_HOME", folder.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("TTFT"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("full.svg cannot be written"), "{error}");
    assert!(!path.exists(), "nothing half written is left");
}
