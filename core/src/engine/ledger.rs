//! The times of every request that is not over, and what is counted of all. Knows no clock: is told
//! the time.

use super::metrics::{EngineMetrics, RequestMetrics, RequestShape};
use crate::sched::{RequestUpdate, SchedulerOutput};
use crate::types::RequestId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Times and counts.
#[derive(Debug)]
pub(super) struct Ledger {
    open: BTreeMap<RequestId, (RequestMetrics, RequestShape)>,
    pub(super) totals: EngineMetrics,
}

impl Ledger {
    /// Nothing yet, of requests of up to `max_model_len` tokens.
    pub(super) fn new(max_model_len: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            totals: EngineMetrics::new(max_model_len),
        }
    }

    /// A request was added.
    pub(super) fn open(&mut self, id: RequestId, arrival: Duration, shape: RequestShape) {
        self.open.insert(id, (RequestMetrics::new(arrival), shape));
    }

    /// Whether a request is not over.
    pub(super) fn is_open(&self, id: RequestId) -> bool {
        self.open.contains_key(&id)
    }

    /// The times of a request that is not over.
    pub(super) fn times(&self, id: RequestId) -> Option<RequestMetrics> {
        self.open.get(&id).map(|(times, _)| *times)
    }

    /// A request failed with its step.
    pub(super) fn fail(&mut self, id: RequestId, now: Duration) {
        if let Some((times, shape)) = self.open.remove(&id) {
            self.totals.record_finished(&times, &shape, now, None);
        }
    }

    /// All that are not over failed.
    pub(super) fn fail_all(&mut self, now: Duration) {
        for (times, shape) in std::mem::take(&mut self.open).into_values() {
            self.totals.record_finished(&times, &shape, now, None);
        }
    }

    /// A request has another id from now on.
    pub(super) fn rename(&mut self, old: RequestId, new: RequestId) {
        if let Some(entry) = self.open.remove(&old) {
            self.open.insert(new, entry);
        }
    }

    /// A step was launched.
    pub(super) fn record_launch(&mut self, step: &SchedulerOutput, now: Duration) {
        for share in &step.scheduled {
            if let Some((times, _)) = self.open.get_mut(&share.request_id) {
                times.record_scheduled(now);
            }
        }
    }

    /// A step was finished.
    pub(super) fn record_step(&mut self, step: &SchedulerOutput) {
        self.totals.record_step(step.total_num_scheduled_tokens());
    }

    /// A step brought a request something. Gives its times.
    pub(super) fn record(&mut self, update: &RequestUpdate, now: Duration) -> RequestMetrics {
        let (times, shape) = self
            .open
            .get_mut(&update.request_id)
            .expect("a request is in the ledger until it is over");
        if update.token_id.is_some() {
            let since = times.record_token(now);
            if since.is_none() {
                self.totals
                    .record_prompt(shape.num_prompt_tokens, update.num_cached_tokens);
            }
            self.totals.record_token(times, since);
        }
        let (times, shape) = (*times, *shape);
        if let Some(finished) = &update.finished {
            self.open.remove(&update.request_id);
            let reason = finished.as_ref().ok().copied();
            self.totals.record_finished(&times, &shape, now, reason);
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::MetricValue;
    use super::super::paged_hash::{config, engine, prompt, serve};

    #[test]
    fn an_engine_counts_what_it_did() {
        let mut engine = engine(config());
        let answers = serve(&mut engine, 0..8);
        let tokens: usize = answers.iter().map(|answer| answer.token_ids.len()).sum();
        let prompts: usize = (0..8).map(|index| prompt(index).0.len()).sum();
        let gauges = engine.gauges();
        assert_eq!(
            (gauges.num_requests_running, gauges.num_requests_waiting),
            (0, 0)
        );
        assert_eq!(gauges.kv_cache_usage, 0.0);
        let families = engine.metrics().families(&gauges);
        let counter = |name: &str| {
            let found = families.iter().find(|family| family.name == name);
            match &found.unwrap_or_else(|| panic!("{name}")).value {
                MetricValue::Counter(n) => *n as usize,
                MetricValue::LabelledCounter(_, all) => all.iter().map(|(_, n)| *n as usize).sum(),
                MetricValue::Histogram(histogram) => histogram.count() as usize,
                other => panic!("{name}: {other:?}"),
            }
        };
        assert_eq!(counter("vllm:generation_tokens"), tokens);
        assert_eq!(counter("vllm:prompt_tokens"), prompts);
        assert_eq!(counter("vllm:request_success"), 8);
        assert_eq!(counter("vllm:time_to_first_token_seconds"), 8);
        assert_eq!(counter("vllm:inter_token_latency_seconds"), tokens - 8);
        for span in ["queue", "prefill", "decode", "inference"] {
            assert_eq!(counter(&format!("vllm:request_{span}_time_seconds")), 8);
        }
    }
}
