//! Whether `/metrics` is what Prometheus reads.

use std::collections::BTreeMap;

use crate::scene::Client;

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
    assert_eq!(client.metric("vllm:num_requests_running"), 0.0);
    assert!(client.metric("vllm:generation_tokens_total") > 100.0);
    let refused = "path=\"/v1/chat/completions\",status=\"400\"";
    assert!(reply.body.contains(refused), "{}", reply.body);
}
