//! What an engine counts since it began, under the names and with the buckets of vLLM's metrics
//! (its `docs/design/metrics.md`), so that dashboards and routers made for those read these; what
//! vLLM has no name for is prefixed `twoclock:`. Knows no scheduler and no clock.

use super::family::{MetricFamily, MetricValue};
use super::histogram::Histogram;
use super::kv::KvSlotSeconds;
use super::request::RequestMetrics;
use super::slo::Slo;
use crate::sched::CacheMetrics;
use crate::types::FinishReason;
use std::time::Duration;

const TTFT_BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_BOUNDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_BOUNDS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const ITERATION_BOUNDS: [f64; 13] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const N_BOUNDS: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

/// How answers end, in the order of [`EngineMetrics`]' counts.
const REASONS: [&str; 4] = ["stop", "length", "abort", "error"];

/// Counts and times of everything since the engine began.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineMetrics {
    slo: Slo,
    prompt_tokens: u64,
    prompt_tokens_cached: u64,
    generation_tokens: u64,
    finished: [u64; REASONS.len()],
    within_slo: u64,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    time_per_output_token: Histogram,
    e2e_latency: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    inference_time: Histogram,
    iteration_tokens: Histogram,
    prompt_tokens_of_request: Histogram,
    generation_tokens_of_request: Histogram,
    n_of_request: Histogram,
    max_tokens_of_request: Histogram,
}

/// What an answer that ended was.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRequest<'a> {
    /// Its times.
    pub metrics: &'a RequestMetrics,
    /// When it ended.
    pub now: Duration,
    /// Why; `None` where it failed.
    pub reason: Option<FinishReason>,
    /// Tokens of its prompt.
    pub num_prompt_tokens: usize,
    /// Most tokens it might have drawn.
    pub max_tokens: usize,
    /// Answers asked for with it.
    pub n: usize,
}

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
}

impl EngineMetrics {
    /// Nothing counted yet. Requests reach to `max_model_len` tokens; goodput is measured by `slo`.
    pub fn new(max_model_len: usize, slo: Slo) -> Self {
        let of_request = || Histogram::new(REQUEST_BOUNDS);
        let tokens = || Histogram::one_two_five(max_model_len);
        Self {
            slo,
            prompt_tokens: 0,
            prompt_tokens_cached: 0,
            generation_tokens: 0,
            finished: [0; REASONS.len()],
            within_slo: 0,
            time_to_first_token: Histogram::new(TTFT_BOUNDS),
            inter_token_latency: Histogram::new(TOKEN_BOUNDS),
            time_per_output_token: Histogram::new(TOKEN_BOUNDS),
            e2e_latency: of_request(),
            queue_time: of_request(),
            prefill_time: of_request(),
            decode_time: of_request(),
            inference_time: of_request(),
            iteration_tokens: Histogram::new(ITERATION_BOUNDS),
            prompt_tokens_of_request: tokens(),
            generation_tokens_of_request: tokens(),
            n_of_request: Histogram::new(N_BOUNDS),
            max_tokens_of_request: tokens(),
        }
    }

    /// Notes that a step computed so many tokens.
    pub fn record_step(&mut self, num_tokens: usize) {
        self.iteration_tokens.observe(num_tokens as f64);
    }

    /// Notes a token that came out: the time to it where it is the first of its answer, the time
    /// since the one before where it is not.
    pub fn record_token(&mut self, metrics: &RequestMetrics, since: Option<Duration>) {
        self.generation_tokens += 1;
        match since {
            Some(since) => self.inter_token_latency.observe(since.as_secs_f64()),
            None => self.time_to_first_token.observe_span(metrics.ttft()),
        }
    }

    /// Notes that a request began, with so many tokens of its prompt found in the cache.
    pub fn record_prompt(&mut self, num_prompt_tokens: usize, num_cached_tokens: usize) {
        self.prompt_tokens += num_prompt_tokens as u64;
        self.prompt_tokens_cached += num_cached_tokens as u64;
    }

    /// Notes an answer that ended.
    pub fn record_finished(&mut self, request: &FinishedRequest<'_>) {
        let place = match request.reason {
            Some(FinishReason::Stop) => 0,
            Some(FinishReason::Length) => 1,
            Some(FinishReason::Abort) => 2,
            None => 3,
        };
        self.finished[place] += 1;
        let metrics = request.metrics;
        if place < 2 && self.slo.is_met(metrics) {
            self.within_slo += 1;
        }
        self.time_per_output_token.observe_span(metrics.tpot());
        let e2e = request.now.saturating_sub(metrics.arrival);
        self.e2e_latency.observe_span(Some(e2e));
        self.queue_time.observe_span(metrics.queue());
        self.prefill_time.observe_span(metrics.prefill());
        self.decode_time.observe_span(metrics.decode());
        self.inference_time.observe_span(metrics.inference());
        let counts = [
            (
                &mut self.prompt_tokens_of_request,
                request.num_prompt_tokens,
            ),
            (
                &mut self.generation_tokens_of_request,
                metrics.num_output_tokens,
            ),
            (&mut self.n_of_request, request.n),
            (&mut self.max_tokens_of_request, request.max_tokens),
        ];
        for (histogram, count) in counts {
            histogram.observe(count as f64);
        }
    }

    /// Tokens that came out.
    pub fn generation_tokens(&self) -> u64 {
        self.generation_tokens
    }

    /// Answers that ended by themselves and kept the objectives; a second of time has the goodput
    /// of its share of them.
    pub fn num_within_slo(&self) -> u64 {
        self.within_slo
    }

    /// Times to the first token, seconds.
    pub fn time_to_first_token(&self) -> &Histogram {
        &self.time_to_first_token
    }

    /// Times between tokens, seconds.
    pub fn inter_token_latency(&self) -> &Histogram {
        &self.inter_token_latency
    }

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
            "Prompt tokens of requests that brought a first token.",
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
            "From arrival to the first token, seconds.",
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
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_counted_once() {
        let ms = Duration::from_millis;
        let slo = Slo {
            ttft: Some(ms(300)),
            tpot: Some(ms(50)),
        };
        let mut engine = EngineMetrics::new(1000, slo);
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
            engine.record_finished(&FinishedRequest {
                metrics: &metrics,
                now: ms(first + 60),
                reason,
                num_prompt_tokens: 30,
                max_tokens: 3,
                n: 1,
            });
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
