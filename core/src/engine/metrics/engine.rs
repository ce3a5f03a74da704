//! What an engine counts since it began, with the buckets of vLLM's metrics. Knows no scheduler, no
//! clock and no name of a metric.

use super::histogram::Histogram;
use super::request::{RequestMetrics, RequestShape};
use crate::sched::ServiceLevel;
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
pub(super) const REASONS: [&str; 4] = ["stop", "length", "abort", "error"];

/// Counts and times of everything since the engine began.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineMetrics {
    pub(super) level: ServiceLevel,
    pub(super) prompt_tokens: u64,
    pub(super) prompt_tokens_cached: u64,
    pub(super) generation_tokens: u64,
    pub(super) finished: [u64; REASONS.len()],
    pub(super) within_slo: u64,
    pub(super) time_to_first_token: Histogram,
    pub(super) inter_token_latency: Histogram,
    pub(super) time_per_output_token: Histogram,
    pub(super) e2e_latency: Histogram,
    pub(super) queue_time: Histogram,
    pub(super) prefill_time: Histogram,
    pub(super) decode_time: Histogram,
    pub(super) inference_time: Histogram,
    pub(super) iteration_tokens: Histogram,
    pub(super) prompt_tokens_of_request: Histogram,
    pub(super) generation_tokens_of_request: Histogram,
    pub(super) n_of_request: Histogram,
    pub(super) max_tokens_of_request: Histogram,
}

impl EngineMetrics {
    /// Nothing counted yet, of requests of up to `max_model_len` tokens. Every answer that ends by
    /// itself is good, until there is a [service level](Self::set_service_level).
    pub fn new(max_model_len: usize) -> Self {
        let of_request = || Histogram::new(REQUEST_BOUNDS);
        let tokens = || Histogram::one_two_five(max_model_len);
        Self {
            level: ServiceLevel::default(),
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

    /// Notes that the first token of an answer ended it.
    pub fn record_empty(&mut self, metrics: &RequestMetrics) {
        self.time_to_first_token.observe_span(metrics.ttft());
    }

    /// Notes that a request began, with so many tokens of its prompt found in the cache.
    pub fn record_prompt(&mut self, num_prompt_tokens: usize, num_cached_tokens: usize) {
        self.prompt_tokens += num_prompt_tokens as u64;
        self.prompt_tokens_cached += num_cached_tokens as u64;
    }

    /// Measures goodput by this from now on.
    pub fn set_service_level(&mut self, level: ServiceLevel) {
        self.level = level;
    }

    /// Notes an answer that ended at a time for a reason, `None` where it failed.
    pub fn record_finished(
        &mut self,
        metrics: &RequestMetrics,
        shape: &RequestShape,
        now: Duration,
        reason: Option<FinishReason>,
    ) {
        let place = match reason {
            Some(FinishReason::Stop) => 0,
            Some(FinishReason::Length) => 1,
            Some(FinishReason::Abort) => 2,
            None => 3,
        };
        self.finished[place] += 1;
        if place < 2 && metrics.meets(&self.level) {
            self.within_slo += 1;
        }
        self.time_per_output_token.observe_span(metrics.tpot());
        let e2e = now.saturating_sub(metrics.arrival);
        self.e2e_latency.observe_span(Some(e2e));
        self.queue_time.observe_span(metrics.queue());
        self.prefill_time.observe_span(metrics.prefill());
        self.decode_time.observe_span(metrics.decode());
        self.inference_time.observe_span(metrics.inference());
        let counts = [
            (&mut self.prompt_tokens_of_request, shape.num_prompt_tokens),
            (
                &mut self.generation_tokens_of_request,
                metrics.num_output_tokens,
            ),
            (&mut self.n_of_request, shape.n),
            (&mut self.max_tokens_of_request, shape.max_tokens),
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
}
