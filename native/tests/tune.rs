//! `twoclock tune`: what it keeps is read by later runs, and what is not its file changes nothing.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use twoclock::host_executor::{DeviceChoice, HostExecutor, Pipelines};
use twoclock::kept_tuning;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::executor::Executor as _;

fn twoclock(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .args(args)
        .env("TWOCLOCK_HOME", home)
        .output()
        .expect("the program")
}

fn kept(home: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(home.join("pipelines")).ok()?;
    let mut paths = files.map(|file| file.expect("a file").path());
    paths.find(|path| path.to_string_lossy().ends_with(".tuning.json"))
}

#[test]
fn what_is_measured_is_kept_and_a_broken_file_counts_as_none() {
    let home = std::env::temp_dir().join(format!("twoclock-tune-{}", std::process::id()));
    let dry = twoclock(&home, &["tune", "--dry-run", "--json"]);
    let text = String::from_utf8_lossy(&dry.stdout);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let times = json["times"].as_array().expect("times");
    assert!(times.len() >= 3, "{json}");
    let choices: Vec<&str> = times
        .iter()
        .filter_map(|row| row["choice"].as_str())
        .collect();
    assert!(choices.iter().any(|c| c.contains("rows")), "{choices:?}");
    for row in times {
        let seconds = row["seconds"].as_object().expect("a body each");
        assert!(seconds.len() >= 2);
        assert!(seconds.values().all(|s| s.as_f64().expect("seconds") > 0.0));
    }
    assert!(kept(&home).is_none(), "a dry run writes nothing");

    let run = twoclock(&home, &["tune"]);
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success()
            && ["row_tokens", "row_rows_many"]
                .iter()
                .all(|field| table.contains(field)),
        "{table}"
    );
    let path = kept(&home).expect("a file");
    let file: Value = serde_json::from_slice(&std::fs::read(&path).expect("reads")).expect("JSON");
    assert!(file["tuning"]["row_tokens"].is_u64(), "{file}");
    // A processor has no use for it, so nobody measured it.
    assert!(file["tuning"]["gemv_tokens"].is_null(), "{file}");

    std::fs::write(&path, "{\"version\": 2, \"tuning\": {\"row_tokens\": 3}}").expect("writes");
    let run = twoclock(&home, &["tune", "--dry-run"]);
    let warning = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{warning}");
    assert!(
        warning.contains("row_tokens cannot be 3") && warning.contains("twoclock tune"),
        "{warning}"
    );

    let refused = twoclock(&home, &["tune", "--device", "cpu"]);
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("nothing to tune"), "{why}");
    std::fs::remove_dir_all(&home).expect("cleans up");
}

/// Whatever reads it: what compiles everything anew too, and what only writes shaders.
#[test]
fn what_is_kept_holds_without_kept_pipelines_and_without_a_device() {
    let home = tempfile::tempdir().expect("a folder");
    let caches = home.path().join("pipelines");
    let found = twoclock::devices::find();
    let adapter = found.first().expect("an adapter");
    let path = kept_tuning::path(&caches, &adapter.cache_key);
    let (field, usual, other) = match adapter.caps.kind {
        DeviceKind::Cpu => ("row_rows_alone", 4, 8),
        DeviceKind::Gpu => ("gemv_lanes", 64, 32),
    };
    let rows = |field| {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/Q4_0.gguf");
        let folder = home.path().join("shaders");
        let (model, to) = (
            model.to_str().expect("text"),
            folder.to_str().expect("text"),
        );
        let written = twoclock(home.path(), &["dump-shaders", "-m", model, to]);
        assert!(written.status.success());
        let manifest = std::fs::read(folder.join("manifest.json")).expect("written");
        let manifest: Vec<Value> = serde_json::from_slice(&manifest).expect("JSON");
        let of_one = |v: &&Value| v["constants"]["TOKENS"] == 1 && v["constants"][field].is_u64();
        let values = manifest.iter().filter(of_one);
        let values = values.map(|v| v["constants"][field].as_u64().expect("a number"));
        values.collect::<std::collections::BTreeSet<_>>()
    };
    let constant = if field == "gemv_lanes" {
        "LANES"
    } else {
        "ROWS"
    };
    assert!(rows(constant).contains(&usual));
    kept_tuning::write(&path, &adapter.name, &[(field, other as u32)]).expect("writes");
    assert!(rows(constant).contains(&other));
    for pipelines in [Pipelines::Kept, Pipelines::Fresh] {
        let executor = HostExecutor::open(DeviceChoice::Best, &caches, pipelines).expect("opens");
        let tuning = adapter.caps.tuning.with(field, other as u32);
        assert_eq!(Some(executor.caps().tuning), tuning, "{pipelines:?}");
    }
}
