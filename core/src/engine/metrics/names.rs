//! What an engine counts, under the names of vLLM's metrics (its `docs/design/metrics.md`), so that
//! dashboards and routers made for those read these; what vLLM has no name for is prefixed
//! `twoclock:`. Knows no format.

use super::engine::{EngineMetrics, REASONS};
use super::family::{MetricFamily, MetricValue};
use super::histogram::Histogram;
use super::kv::KvSlotSeconds;
use crate::engine::step_costs::StepRecord;
use crate::sched::CacheMetrics;

/// What an engine is doing now, for [`EngineMetrics::families`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineGauges {
    /// Requests that take part in steps.
    pub num_requests_running: usize,
    /// Requests that wait for it.
    pub num_requests_waiting: usize,
    /// Share of the KV blocks that somebody holds, 0 to 1.
    pub kv_cache_usage: f64,
    /// What the cache was good for.
    pub cache: CacheMetrics,
    /// What it held for how long.
    pub kv_slot_seconds: KvSlotSeconds,
    /// Tokens a block.
    pub block_size: usize,
    /// Blocks for layers that attend to everything, the null block included.
    pub num_blocks: usize,
    /// The step finished last, where steps are predicted.
    pub last_step: Option<StepRecord>,
}

impl EngineMetrics {
    /// Everything under its name.
    pub fn families(&self, now: &EngineGauges) -> Vec<MetricFamily> {
        let cache = &now.cache;
        let preemptions = cache.num_preemptions_recompute + cache.num_preemptions_swap;
        let reasons = REASONS.into_iter().zip(self.finished).collect();
        let mut families = Vec::new();
        let mut family = |name, help, value| families.push(MetricFamily { name, help, value });
        let gauge = |value: usize| MetricValue::Gauge(value as f64);
        let seconds = |histogram: &Histogram| MetricValue::Histogram(histogram.clone());
        family(
            "vllm:num_requests_running",
            "Requests that take part in steps.",
            gauge(now.num_requests_running),
        );
        family(
            "vllm:num_requests_waiting",
            "Requests that wait to take part in steps.",
            gauge(now.num_requests_waiting),
        );
        family(
            "vllm:kv_cache_usage_perc",
            "Share of the KV blocks that are held, 0 to 1.",
            MetricValue::Gauge(now.kv_cache_usage),
        );
        family(
            "vllm:cache_config_info",
            "The KV cache: tokens a block, blocks.",
            MetricValue::Info(vec![
                ("block_size", now.block_size.to_string()),
                ("num_gpu_blocks", now.num_blocks.to_string()),
            ]),
        );
        family(
            "vllm:prefix_cache_queries",
            "Tokens of requests that began.",
            MetricValue::Counter(cache.prefix_cache_queries),
        );
        family(
            "vllm:prefix_cache_hits",
            "Tokens of requests that began that were found in the cache.",
            MetricValue::Counter(cache.prefix_cache_hits),
        );
        family(
            "vllm:num_preemptions",
            "Requests that lost their blocks to older ones.",
            MetricValue::Counter(preemptions),
        );
        family(
            "vllm:prompt_tokens",
            "Prompt tokens of requests whose prompts were computed to their end.",
            MetricValue::Counter(self.prompt_tokens),
        );
        family(
            "vllm:prompt_tokens_cached",
            "Of the prompt tokens, those found in the cache.",
            MetricValue::Counter(self.prompt_tokens_cached),
        );
        family(
            "vllm:generation_tokens",
            "Tokens drawn, stop ids excluded.",
            MetricValue::Counter(self.generation_tokens),
        );
        family(
            "vllm:request_success",
            "Answers that ended, by reason.",
            MetricValue::LabelledCounter("finished_reason", reasons),
        );
        family(
            "vllm:time_to_first_token_seconds",
            "From arrival at the engine to the first token, one that ends the answer included, seconds. Reading the \
             request and loading its model come before.",
            seconds(&self.time_to_first_token),
        );
        family(
            "vllm:inter_token_latency_seconds",
            "Between two tokens of an answer, seconds.",
            seconds(&self.inter_token_latency),
        );
        // Its name before there was the one above; the same values.
        family(
            "vllm:time_per_output_token_seconds",
            "Between two tokens of an answer, seconds.",
            seconds(&self.inter_token_latency),
        );
        family(
            "vllm:request_time_per_output_token_seconds",
            "Mean time between the tokens of an answer, seconds.",
            seconds(&self.time_per_output_token),
        );
        family(
            "vllm:e2e_request_latency_seconds",
            "From arrival to the end of the answer, seconds.",
            seconds(&self.e2e_latency),
        );
        family(
            "vllm:request_queue_time_seconds",
            "From arrival to the first share of a step, seconds.",
            seconds(&self.queue_time),
        );
        family(
            "vllm:request_prefill_time_seconds",
            "From the first share of a step to the first token, seconds.",
            seconds(&self.prefill_time),
        );
        family(
            "vllm:request_decode_time_seconds",
            "From the first token to the last, seconds.",
            seconds(&self.decode_time),
        );
        family(
            "vllm:request_inference_time_seconds",
            "From the first share of a step to the last token, seconds.",
            seconds(&self.inference_time),
        );
        family(
            "vllm:iteration_tokens_total",
            "Tokens a step computed.",
            seconds(&self.iteration_tokens),
        );
        family(
            "vllm:request_prompt_tokens",
            "Prompt tokens of a request.",
            seconds(&self.prompt_tokens_of_request),
        );
        family(
            "vllm:request_generation_tokens",
            "Tokens of an answer.",
            seconds(&self.generation_tokens_of_request),
        );
        family(
            "vllm:request_params_n",
            "Answers asked for with a request.",
            seconds(&self.n_of_request),
        );
        family(
            "vllm:request_params_max_tokens",
            "Most tokens asked for with a request.",
            seconds(&self.max_tokens_of_request),
        );
        family(
            "twoclock:requests_within_slo",
            "Answers that ended by themselves and kept every service-level objective: their rate is the goodput.",
            MetricValue::Counter(self.within_slo),
        );
        family(
            "twoclock:kv_allocated_slot_seconds",
            "KV slots in blocks that were held, times the seconds they were.",
            MetricValue::Sum(now.kv_slot_seconds.allocated),
        );
        family(
            "twoclock:kv_unused_slot_seconds",
            "Of the held KV slots those without a token, times seconds: their share is the waste.",
            MetricValue::Sum(now.kv_slot_seconds.unused),
        );
        if let Some(step) = &now.last_step {
            family(
                "twoclock:step_arithmetic_intensity",
                "Operations a byte of the step finished last: under the ridge it waits for memory.",
                MetricValue::Gauge(step.flops / step.bytes.max(1.0)),
            );
            family(
                "twoclock:step_achieved_flops",
                "Operations a second of the step finished last, its place under the roof.",
                MetricValue::Gauge(step.flops / step.measured.max(1e-9)),
            );
            family(
                "twoclock:step_achieved_bytes_per_second",
                "Bytes a second of device memory that the step finished last moved.",
                MetricValue::Gauge(step.bytes / step.measured.max(1e-9)),
            );
            family(
                "twoclock:step_predicted_seconds",
                "What the step finished last was predicted to take.",
                MetricValue::Gauge(step.predicted),
            );
            family(
                "twoclock:step_measured_seconds",
                "What the step finished last took.",
                MetricValue::Gauge(step.measured),
            );
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RequestMetrics, RequestShape};
    use super::*;
    use crate::sched::ServiceLevel;
    use crate::types::FinishReason;
    use std::time::Duration;

    #[test]
    fn a_life_is_counted_once() {
        let ms = Duration::from_millis;
        let mut engine = EngineMetrics::new(1000);
        engine.set_service_level(ServiceLevel {
            ttft: Some(0.3),
            tpot: Some(0.05),
        });
        for (first, reason) in [
            (200, Some(FinishReason::Length)),
            (400, Some(FinishReason::Stop)),
            (200, None),
        ] {
            let mut metrics = RequestMetrics::new(ms(0));
            metrics.record_scheduled(ms(100));
            engine.record_prompt(30, 16);
            for now in [first, first + 20, first + 60] {
                let since = metrics.record_token(ms(now));
                engine.record_token(&metrics, since);
            }
            let shape = RequestShape {
                num_prompt_tokens: 30,
                max_tokens: 3,
                n: 1,
            };
            engine.record_finished(&metrics, &shape, ms(first + 60), reason);
        }
        engine.record_step(90);
        let families = engine.families(&EngineGauges::default());
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name == name);
            &family.unwrap_or_else(|| panic!("{name}")).value
        };
        assert_eq!(value("vllm:prompt_tokens"), &MetricValue::Counter(90));
        assert_eq!(
            value("vllm:prompt_tokens_cached"),
            &MetricValue::Counter(48)
        );
        assert_eq!(value("vllm:generation_tokens"), &MetricValue::Counter(9));
        assert_eq!(
            value("vllm:request_success"),
            &MetricValue::LabelledCounter(
                "finished_reason",
                vec![("stop", 1), ("length", 1), ("abort", 0), ("error", 1)]
            )
        );
        assert_eq!(
            value("twoclock:requests_within_slo"),
            &MetricValue::Counter(1)
        );
        let MetricValue::Histogram(itl) = value("vllm:inter_token_latency_seconds") else {
            panic!("no histogram");
        };
        assert_eq!(itl.count(), 6);
        assert!((itl.sum() - 0.18).abs() < 1e-9);
        let MetricValue::Histogram(queue) = value("vllm:request_queue_time_seconds") else {
            panic!("no histogram");
        };
        assert!((queue.sum() - 0.3).abs() < 1e-9);
        let mut names: Vec<_> = families.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), families.len(), "a name is given twice");
    }
}
