//! `/metrics`: what engines and the server count, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout_at};
use twoclock_core::clock::Clock;
use twoclock_core::engine::EngineHandle;
use twoclock_core::engine::handle::{engine_up, step_running};
use twoclock_core::engine::metrics::{MetricFamily, MetricValue};

use super::app::App;
use super::http_metrics::HttpMetrics;
use crate::clock::HostClock;
use crate::logs;
use crate::process::Process;

/// Longest wait for the steps that are computed, as engines tell their counts between two: who scrapes gives up after
/// some seconds, and would then hear nothing at all.
const MOST_WAIT: Duration = Duration::from_secs(2);

/// `/metrics`.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut of_models: Vec<(&str, Vec<MetricFamily>)> = Vec::new();
    let until = Instant::now() + MOST_WAIT;
    for (name, loaded) in app.models.loaded() {
        of_models.push((name, engine(loaded.handle(), until).await));
    }
    for name in app.models.failed() {
        // It may have been there a moment ago.
        if of_models.iter().all(|(other, _)| *other != name) {
            of_models.push((name, vec![engine_up(false)]));
        }
    }
    let mut text = engines(&of_models);
    requests(&mut text, &app.http_metrics);
    for (name, kind, help, value) in [
        (
            "twoclock:http_requests_running",
            "gauge",
            "Requests whose answers are not sent yet.",
            app.shutdown.num_running() as u64,
        ),
        (
            "twoclock:http_connections",
            "gauge",
            "Connections that are open.",
            app.connections.num_open() as u64,
        ),
        (
            "twoclock:http_connections_max",
            "gauge",
            "Connections that may be open.",
            app.connections.most() as u64,
        ),
        (
            "twoclock:log_lines_dropped_total",
            "counter",
            "Lines of the log that were dropped, as it was not read in time or could not be written.",
            logs::dropped(),
        ),
    ] {
        head(&mut text, name, help, kind);
        let _ = writeln!(text, "{name} {value}");
    }
    let (name, version) = ("twoclock:build_info", env!("CARGO_PKG_VERSION"));
    head(&mut text, name, "What it is.", "gauge");
    let _ = writeln!(text, "{name}{{version=\"{version}\"}} 1");
    process(&mut text, &app.process_facts.now().await);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// What an engine counts; of before the step that it computes, where that does not end in time.
async fn engine(handle: &EngineHandle, until: Instant) -> Vec<MetricFamily> {
    let counts = timeout_at(until, handle.metrics()).await;
    let mut families = counts.unwrap_or_else(|_| handle.last_metrics());
    // All engines of a program run by its clock.
    let began = handle.step_began();
    let span = began.map_or(Duration::ZERO, |began| {
        HostClock::default().now().saturating_sub(began)
    });
    families.push(step_running(span));
    families
}

/// A label's value as the format has it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// What counts of several models look like: each metric once, with a line a model.
fn engines(of_models: &[(&str, Vec<MetricFamily>)]) -> String {
    // In the order they come; those of all models have the same names.
    let mut order = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<(&str, &MetricFamily)>> = BTreeMap::new();
    for (model, families) in of_models {
        for family in families {
            let entry = by_name.entry(family.name).or_default();
            if entry.is_empty() {
                order.push(family.name);
            }
            entry.push((model, family));
        }
    }
    let mut text = String::new();
    for name in order {
        let families = &by_name[name];
        let (kind, suffix) = match families[0].1.value {
            MetricValue::Gauge(_) | MetricValue::Info(_) => ("gauge", ""),
            MetricValue::Counter(_) | MetricValue::LabelledCounter(..) | MetricValue::Sum(_) => {
                ("counter", "_total")
            }
            MetricValue::Histogram(_) => ("histogram", ""),
        };
        let suffix = if name.ends_with(suffix) { "" } else { suffix };
        head(
            &mut text,
            &format!("{name}{suffix}"),
            families[0].1.help,
            kind,
        );
        for (model, family) in families {
            let label = format!("model_name=\"{}\"", escaped(model));
            write_value(&mut text, &format!("{name}{suffix}"), &label, &family.value);
        }
    }
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing into a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn write_value(text: &mut String, name: &str, label: &str, value: &MetricValue) {
    let mut line = |name: &str, labels: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    };
    match value {
        MetricValue::Gauge(value) | MetricValue::Sum(value) => line(name, label, value),
        MetricValue::Counter(count) => line(name, label, count),
        MetricValue::Info(labels) => {
            let more = labels
                .iter()
                .map(|(key, value)| format!(",{key}=\"{}\"", escaped(value)));
            line(name, &format!("{label}{}", more.collect::<String>()), &1);
        }
        MetricValue::LabelledCounter(key, counts) => {
            for (value, count) in counts {
                line(
                    name,
                    &format!("{label},{key}=\"{}\"", escaped(value)),
                    count,
                );
            }
        }
        MetricValue::Histogram(histogram) => {
            for (bound, count) in histogram.cumulative() {
                let bound = match bound.is_finite() {
                    true => bound.to_string(),
                    false => "+Inf".to_owned(),
                };
                line(
                    &format!("{name}_bucket"),
                    &format!("{label},le=\"{bound}\""),
                    &count,
                );
            }
            line(&format!("{name}_sum"), label, &histogram.sum());
            line(&format!("{name}_count"), label, &histogram.count());
        }
    }
}

/// The server's own.
fn requests(text: &mut String, counts: &HttpMetrics) {
    for (name, help, counts) in [
        (
            "twoclock:http_requests_total",
            "Requests that are over, by path and status; 499 is a client that went first.",
            counts.requests(),
        ),
        (
            "twoclock:http_streams_cut_total",
            "Answers that did not come to the end that their heads promised, mostly streams, by the status each would \
             have had; 499 is a client that went first.",
            counts.streams_cut(),
        ),
    ] {
        head(text, name, help, "counter");
        for ((path, status), count) in counts {
            let _ = writeln!(
                text,
                "{name}{{path=\"{path}\",status=\"{status}\"}} {count}"
            );
        }
    }
}

/// The process, under the names that Prometheus' own clients give; what the host does not say is left out.
fn process(text: &mut String, process: &Process) {
    let count = |count: Option<u64>| count.map(|count| count as f64);
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "Time of processors taken, seconds.",
            process.cpu_seconds,
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Memory of the host that is held, bytes.",
            count(process.resident_bytes),
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Addresses that are taken, bytes.",
            count(process.virtual_bytes),
        ),
        (
            "process_open_fds",
            "gauge",
            "Files that are open.",
            count(process.open_fds),
        ),
        (
            "process_max_fds",
            "gauge",
            "Files that may be open.",
            count(process.max_fds),
        ),
        (
            "process_threads",
            "gauge",
            "Threads.",
            count(process.threads),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When it began, seconds of the epoch.",
            process.started,
        ),
    ] {
        if let Some(value) = value {
            head(text, name, help, kind);
            let _ = writeln!(text, "{name} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twoclock_core::engine::metrics::Histogram;

    #[test]
    fn what_the_host_does_not_say_is_left_out() {
        let mut text = String::new();
        let known = Process {
            resident_bytes: Some(3 << 30),
            started: Some(1_796_000_000.25),
            ..Process::default()
        };
        process(&mut text, &known);
        let expected = "# HELP process_resident_memory_bytes Memory of the host that is held, bytes.\n\
            # TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 3221225472\n\
            # HELP process_start_time_seconds When it began, seconds of the epoch.\n\
            # TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1796000000.25\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_metric_is_told_once_for_all_models() {
        let mut histogram = Histogram::new([0.5, 1.0]);
        histogram.observe(0.25);
        histogram.observe(3.0);
        let families = |n| {
            let family = |name, value| MetricFamily {
                name,
                help: "A \\ b.",
                value,
            };
            vec![
                family("x:count", MetricValue::Counter(n)),
                family("x:at", MetricValue::Histogram(histogram.clone())),
                family("x:info", MetricValue::Info(vec![("k", "v\"".into())])),
                family(
                    "x:by",
                    MetricValue::LabelledCounter("why", vec![("stop", n)]),
                ),
            ]
        };
        let text = engines(&[("a\"b", families(1)), ("c", families(2))]);
        let expected = "# HELP x:count_total A \\\\ b.\n# TYPE x:count_total counter\n\
            x:count_total{model_name=\"a\\\"b\"} 1\nx:count_total{model_name=\"c\"} 2\n\
            # HELP x:at A \\\\ b.\n# TYPE x:at histogram\n";
        assert!(text.starts_with(expected), "{text}");
        for line in [
            "x:at_bucket{model_name=\"c\",le=\"0.5\"} 1",
            "x:at_bucket{model_name=\"c\",le=\"+Inf\"} 2",
            "x:at_sum{model_name=\"c\"} 3.25",
            "x:at_count{model_name=\"c\"} 2",
            "x:info{model_name=\"c\",k=\"v\\\"\"} 1",
            "x:by_total{model_name=\"c\",why=\"stop\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }
}
