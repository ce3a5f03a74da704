//! Whether `/metrics` is what Prometheus reads, and `/steps` what the page draws.

use std::collections::BTreeMap;

use crate::scene::{Client, Gate, Plan, Scene, long, reply, wait};
use serde_json::Value;

/// Reads the format as Prometheus does: each sample under its type, histograms that add up.
pub(crate) fn metrics(client: Client) {
    let reply = client.get("/metrics");
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut current = "";
    let mut buckets: BTreeMap<String, f64> = BTreeMap::new();
    for line in reply.body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(name.ends_with("_total") || kind != "counter", "{line}");
            assert!(types.insert(name, kind).is_none(), "{name} is there twice");
            current = name;
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|e| panic!("{e}: {line}"));
        let name = sample.split('{').next().unwrap();
        let base = match types[current] {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap(),
            _ => name,
        };
        assert_eq!(base, current, "{line}");
        if name.ends_with("_bucket") {
            let last = buckets.insert(base.to_owned(), value).unwrap_or(0.0);
            assert!(last <= value, "{line}");
        } else if name.ends_with("_count") && types[current] == "histogram" {
            assert_eq!(buckets[base], value, "{line}");
        }
    }
    let is = |name: &str, kind: &str| assert_eq!(types[name], kind, "{name}");
    is("vllm:num_requests_running", "gauge");
    is("vllm:generation_tokens_total", "counter");
    is("vllm:time_to_first_token_seconds", "histogram");
    is("twoclock:http_requests_total", "counter");
    if cfg!(target_os = "linux") {
        is("process_cpu_seconds_total", "counter");
        is("process_start_time_seconds", "gauge");
        for name in [
            "resident_memory_bytes",
            "virtual_memory_bytes",
            "open_fds",
            "max_fds",
            "threads",
        ] {
            is(&format!("process_{name}"), "gauge");
            assert!(client.metric(&format!("process_{name}")) > 2.0, "{name}");
        }
    }
    assert_eq!(client.metric("vllm:num_requests_running"), 0.0);
    assert!(client.metric("vllm:generation_tokens_total") > 100.0);
    let refused = "path=\"/v1/chat/completions\",status=\"400\"";
    assert!(reply.body.contains(refused), "{}", reply.body);
}

/// Reads the last steps of a server that has answered for a while.
pub(crate) fn steps(client: Client) {
    let models = client.get("/steps").json();
    let [model] = &models.as_array().unwrap()[..] else {
        panic!("{models}");
    };
    assert_eq!(model["model"], "tiny");
    // The reference kernels are not measured.
    assert_eq!(model["roof"], Value::Null);
    let steps = model["steps"].as_array().unwrap();
    assert!(steps.len() > 20 && steps.len() <= 256, "{}", steps.len());
    assert!(model["num_steps"].as_u64().unwrap() >= steps.len() as u64);
    let mut last_age = f64::INFINITY;
    let mut kinds = BTreeMap::new();
    for step in steps {
        let number = |name: &str| {
            step[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {step}"))
        };
        assert!(
            number("age_s") >= 0.0 && number("age_s") <= last_age,
            "{step}"
        );
        last_age = number("age_s");
        let counts = ["bytes", "flops", "predicted_seconds", "num_tokens"];
        assert!(counts.iter().all(|name| number(name) > 0.0), "{step}");
        assert!(number("seconds") >= 0.0, "{step}");
        let kind = step["kind"].as_str().unwrap();
        let is_decode = number("num_tokens") == number("num_seqs");
        assert!(kind != "decode" || is_decode, "{step}");
        *kinds.entry(kind).or_insert(0) += 1;
    }
    assert!(last_age < 60.0, "{last_age}");
    assert!(
        kinds.contains_key("decode") && kinds.contains_key("prefill"),
        "{kinds:?}"
    );
}

/// What the server counts is told however long a step takes, and so is that it does.
#[test]
fn a_step_that_hangs_is_told() {
    let gate = Gate::default();
    let scene = Scene::start(Plan {
        gate: Some(gate.clone()),
        ..Plan::default()
    });
    let client = scene.client;
    let running = client.begin("/v1/completions", &long(3));
    wait(|| gate.is_asked());
    assert!(client.metric("twoclock:step_running_seconds") > 0.0);
    assert_eq!(client.metric("twoclock:num_requests"), 1.0);
    assert_eq!(client.metric("vllm:generation_tokens_total"), 0.0);
    assert_eq!(client.metric("twoclock:http_requests_running"), 1.0);
    gate.open(usize::MAX / 2);
    assert_eq!(reply(running).status, 200);
    assert_eq!(client.metric("twoclock:step_running_seconds"), 0.0);
    assert_eq!(client.metric("vllm:generation_tokens_total"), 3.0);
}
