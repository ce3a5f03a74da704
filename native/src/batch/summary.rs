//! What a batch took: counts, times and rates as one JSON object. Knows no engine beyond its numbers.

use std::time::Duration;

use serde_json::{Value, json};
use twoclock_core::engine::RequestMetrics;
use twoclock_core::sched::CacheMetrics;

use crate::openai::Usage;

/// Figures as they gather.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests that had answers before.
    pub skipped: usize,
    /// Requests answered now.
    pub completed: usize,
    /// Requests refused, or failed.
    pub failed: usize,
    /// Requests left, as the program was stopped.
    pub interrupted: usize,
    /// Tokens of those that were answered.
    pub usage: Usage,
    /// From the first request to the last answer.
    pub duration: Duration,
    /// Prefix hits and preemptions.
    pub cache: CacheMetrics,
    /// Share of held cache that held nothing, over time.
    pub kv_waste: Option<f64>,
    ttft: Vec<Duration>,
    tpot: Vec<Duration>,
    latency: Vec<Duration>,
}

impl Summary {
    /// Before anything was done.
    pub fn new(skipped: usize) -> Self {
        Self {
            skipped,
            ..Self::default()
        }
    }

    /// Notes the times of an answer.
    pub fn record(&mut self, metrics: &RequestMetrics) {
        self.ttft.extend(metrics.ttft());
        self.tpot.extend(metrics.tpot());
        let end = metrics.last_token;
        self.latency
            .extend(end.map(|end| end.saturating_sub(metrics.arrival)));
    }

    /// For programs. Times are milliseconds; `null` where there is none.
    pub fn as_json(&self) -> Value {
        let seconds = self.duration.as_secs_f64();
        let rate = |count: usize| (seconds > 0.0).then(|| count as f64 / seconds);
        let usage = self.usage;
        let queries = self.cache.prefix_cache_queries;
        let hits = self.cache.prefix_cache_hits;
        json!({
            "requests": {
                "completed": self.completed,
                "failed": self.failed,
                "skipped": self.skipped,
                "interrupted": self.interrupted,
            },
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "duration_s": seconds,
            "requests_per_s": rate(self.completed),
            "output_tokens_per_s": rate(usage.completion_tokens),
            "total_tokens_per_s": rate(usage.prompt_tokens + usage.completion_tokens),
            "ttft_ms": spread(&self.ttft),
            "tpot_ms": spread(&self.tpot),
            "latency_ms": spread(&self.latency),
            "kv_waste": self.kv_waste,
            "prefix_cache": {
                "queried_tokens": queries,
                "hit_tokens": hits,
                "hit_rate": (queries > 0).then(|| hits as f64 / queries as f64),
            },
            "preemptions": {
                "recompute": self.cache.num_preemptions_recompute,
                "swap": self.cache.num_preemptions_swap,
            },
        })
    }
}

/// Mean and percentiles: each the smallest time that so many hundredths do not exceed.
fn spread(times: &[Duration]) -> Value {
    if times.is_empty() {
        return Value::Null;
    }
    let mut times: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let percentile = |p: usize| times[(times.len() * p).div_ceil(100).max(1) - 1];
    json!({
        "mean": times.iter().sum::<f64>() / times.len() as f64,
        "p50": percentile(50),
        "p90": percentile(90),
        "p95": percentile(95),
        "p99": percentile(99),
        "max": times[times.len() - 1],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let ms: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let all = spread(&ms);
        let expected = json!({"mean": 100.5, "p50": 100.0, "p90": 180.0, "p95": 190.0,
            "p99": 198.0, "max": 200.0});
        assert_eq!(all, expected);
        assert_eq!(spread(&ms[..1])["p50"], 200.0);
        assert_eq!(spread(&[]), Value::Null);
    }
}
