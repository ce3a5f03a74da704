//! The times of every request that is not over, and what is counted of all. Knows no clock: is told
//! the time.

use super::metrics::{EngineMetrics, RequestMetrics, RequestShape};
use crate::sched::{RequestUpdate, SchedulerOutput};
use crate::types::{FinishReason, RequestId};
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
        for id in &step.preempted_ids {
            if let Some((times, _)) = self.open.get_mut(id) {
                times.num_preemptions += 1;
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
        let has_begun = times.first_token.is_some();
        let ended = matches!(
            update.finished,
            Some(Ok(FinishReason::Stop | FinishReason::Length))
        );
        // The token that ends it at once, or its embedding, is the first that comes of its prompt too.
        if !has_begun && (update.token_id.is_some() || ended) {
            self.totals
                .record_prompt(shape.num_prompt_tokens, update.num_cached_tokens);
        }
        if update.token_id.is_some() {
            let since = times.record_token(now);
            self.totals.record_token(times, since);
        } else if !has_begun && ended && shape.max_tokens > 0 {
            times.record_end(now);
            self.totals.record_empty(times);
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
    use super::super::paged_hash::{Engine, config, engine, engine_ending_at, prompt, serve};
    use crate::types::{PoolingParams, SamplingParams};
    use pollster::block_on;

    fn counted(engine: &Engine, name: &str) -> usize {
        let families = engine.metrics().families(&engine.gauges());
        let found = families.iter().find(|family| family.name == name);
        match &found.unwrap_or_else(|| panic!("{name}")).value {
            MetricValue::Counter(n) => *n as usize,
            MetricValue::LabelledCounter(_, all) => all.iter().map(|(_, n)| *n as usize).sum(),
            MetricValue::Histogram(histogram) => histogram.count() as usize,
            other => panic!("{name}: {other:?}"),
        }
    }

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
        let counter = |name: &str| counted(&engine, name);
        assert_eq!(counter("vllm:generation_tokens"), tokens);
        assert_eq!(counter("vllm:prompt_tokens"), prompts);
        assert_eq!(counter("vllm:request_success"), 8);
        assert_eq!(counter("vllm:time_to_first_token_seconds"), 8);
        assert_eq!(counter("vllm:inter_token_latency_seconds"), tokens - 8);
        for span in ["queue", "prefill", "decode", "inference"] {
            assert_eq!(counter(&format!("vllm:request_{span}_time_seconds")), 8);
        }
    }

    #[test]
    fn what_ends_with_its_first_token_was_read_and_had_one() {
        let (ids, params) = prompt(1);
        let first = serve(&mut engine(config()), [1]).remove(0).token_ids[0];
        let mut engine = engine_ending_at(first, config());
        let params = SamplingParams {
            ignore_eos: false,
            ..params
        };
        let answers = block_on(engine.generate(vec![(ids.clone(), params)])).unwrap();
        assert!(answers[0].as_ref().unwrap().token_ids.is_empty());
        assert_eq!(counted(&engine, "vllm:prompt_tokens"), ids.len());
        assert_eq!(counted(&engine, "vllm:generation_tokens"), 0);
        for once in [
            "request_success",
            "time_to_first_token_seconds",
            "e2e_request_latency_seconds",
            "request_queue_time_seconds",
            "request_prefill_time_seconds",
            "request_decode_time_seconds",
            "request_generation_tokens",
        ] {
            assert_eq!(counted(&engine, &format!("vllm:{once}")), 1, "{once}");
        }
        assert_eq!(counted(&engine, "vllm:inter_token_latency_seconds"), 0);
        assert_eq!(engine.metrics().num_within_slo(), 1);
    }

    #[test]
    fn prompts_are_counted_where_nothing_is_drawn() {
        let mut engine = engine(config());
        let (ids, params) = prompt(7);
        let embedded = engine.embed(vec![(ids.clone(), PoolingParams::default())]);
        assert!(block_on(embedded).unwrap()[0].is_ok());
        assert_eq!(counted(&engine, "vllm:prompt_tokens"), ids.len());
        let params = SamplingParams {
            max_tokens: 0,
            ..params
        };
        block_on(engine.generate(vec![(ids.clone(), params)])).unwrap();
        assert_eq!(counted(&engine, "vllm:prompt_tokens"), 2 * ids.len());
        assert_eq!(counted(&engine, "vllm:request_success"), 2);
        assert_eq!(counted(&engine, "vllm:time_to_first_token_seconds"), 0);
    }

    #[test]
    fn a_request_tells_how_often_it_gave_way() {
        let mut tight = engine(crate::sched::SchedulerConfig {
            num_blocks: 1 + 48,
            max_prefill_chunk: Some(64),
            ..config()
        });
        for index in [7, 0, 1, 2, 3, 4, 5, 6] {
            let (ids, params) = prompt(index);
            tight.add_request(ids, params).unwrap();
        }
        let mut told = Vec::new();
        while tight.has_unfinished_requests() {
            for output in block_on(tight.step()).unwrap() {
                if output.finished.is_some() {
                    told.push(output.metrics.num_preemptions);
                }
            }
        }
        let preempted = tight.runner().num_preemptions;
        assert!(
            preempted > 0 && told.iter().sum::<usize>() == preempted,
            "{told:?}"
        );
    }
}
