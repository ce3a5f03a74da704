//! `twoclock embed` on a tiny model and the reference kernels.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The model's folder with a tokenizer beside it, and what else is given.
fn model(home: &Path, files: &[(&str, &str)]) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let folder = home.join("model");
    std::fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    for file in ["models/mistral_full", "tokenizer"] {
        for entry in std::fs::read_dir(golden.join(file)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    folder
}

fn embed(model: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .env("TWOCLOCK_HOME", model.parent().unwrap())
        .stdin(Stdio::null())
        .args(["embed", "--device", "cpu", "-m"])
        .arg(model)
        .args(arguments)
        .output()
        .unwrap()
}

fn vectors(output: &Output) -> Vec<Vec<f64>> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    let objects = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let vector = |(index, object): (usize, Value)| {
        assert_eq!(object["index"], index);
        assert_eq!(object["object"], "embedding");
        assert!(object["usage"]["prompt_tokens"].as_u64() > Some(1));
        let numbers = object["embedding"].as_array().unwrap().iter();
        numbers.map(|x| x.as_f64().unwrap()).collect()
    };
    objects.enumerate().map(vector).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn a_text_is_a_vector() {
    let home = tempfile::tempdir().unwrap();
    let model = model(home.path(), &[]);
    let lines = home.path().join("lines.txt");
    std::fs::write(&lines, "rain falls\nthe sun shines\n").unwrap();
    let file = lines.to_str().unwrap();
    let of_file = vectors(&embed(&model, &["-f", file, "--json"]));
    assert_eq!(of_file.len(), 2);
    let typed = ["-p", "rain falls", "-p", "the sun shines", "--json"];
    assert_eq!(vectors(&embed(&model, &typed)), of_file);
    for vector in &of_file {
        assert_eq!(vector.len(), 64);
        assert!((length(vector) - 1.0).abs() < 1e-6);
    }
    let of = |arguments: &[&str]| {
        let all = [&["-p", "rain falls", "--json"], arguments].concat();
        vectors(&embed(&model, &all)).remove(0)
    };
    assert_eq!(of(&["--pooling", "last"]), of_file[0]);
    assert_ne!(of(&["--pooling", "mean"]), of_file[0]);
    let cut = of(&["--dimensions", "5"]);
    assert_eq!(cut.len(), 5);
    assert!((cut[0] / length(&of_file[0][..5]).recip() - of_file[0][0]).abs() < 1e-6);
    assert!((length(&of(&["--no-normalize"])) - 1.0).abs() > 1e-3);
    // For people: the same numbers with spaces between.
    let plain = embed(&model, &["-p", "rain falls"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    let numbers: Vec<f32> = plain
        .split(' ')
        .map(|x| x.trim().parse().unwrap())
        .collect();
    let expected: Vec<f32> = of_file[0].iter().map(|x| *x as f32).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn the_models_own_pooling_is_taken_or_refused() {
    let home = tempfile::tempdir().unwrap();
    let ask = ["-p", "rain falls", "--json"];
    let plain = model(&home.path().join("plain"), &[]);
    let mean = vectors(&embed(&plain, &[&ask[..], &["--pooling", "mean"]].concat()));
    let config = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}"#;
    let own = model(
        &home.path().join("mean"),
        &[("1_Pooling/config.json", config)],
    );
    assert_eq!(vectors(&embed(&own, &ask)), mean);
    let config = r#"{"pooling_mode_cls_token": true}"#;
    let first = model(
        &home.path().join("first"),
        &[("1_Pooling/config.json", config)],
    );
    for (model, arguments, because) in [
        (&first, &ask[..2], "pooling_mode_cls_token"),
        (&own, &["-p", "a", "--dimensions", "65"], "dimensions is 65"),
        (&own, &["-f", "/nowhere"], "/nowhere cannot be read"),
    ] {
        let output = embed(model, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(because), "{said}");
    }
}
