//! What the span of a request says, in the names of OpenTelemetry's conventions for generative AI, and of vLLM where
//! those have none: what was asked, what it took, how it ended. Never what was said. Knows no collector; where nobody
//! collects it is nothing.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use axum::extract::Request;
use axum::http::Method;
use opentelemetry::trace::{Span as _, Status};
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::Span;
use twoclock_core::engine::RequestOutput;
use twoclock_core::types::SamplingParams;

use super::api_error::ApiError;
use super::request_id::RequestId;
use super::telemetry::Telemetry;

/// Requests that engines compute, and what the conventions call that.
const COMPUTED: [(&str, &str); 5] = [
    ("/v1/chat/completions", "chat"),
    ("/v1/completions", "text_completion"),
    ("/v1/responses", "chat"),
    ("/v1/messages", "chat"),
    ("/v1/embeddings", "embeddings"),
];

/// The span of one request, for all who answer it: nothing until it begins. It ends with the last of them.
#[derive(Clone, Debug, Default)]
pub struct RequestSpan(Arc<OnceLock<Mutex<Told>>>);

#[derive(Debug)]
struct Told {
    span: Span,
    operation: &'static str,
    began: Instant,
    /// An engine has it, and its answer is not whole.
    is_under_way: bool,
    has_first: bool,
    num_output_tokens: usize,
    reasons: Vec<StringValue>,
}

impl RequestSpan {
    /// Begins, if the request is one to be computed. It has been let in: nobody else makes spans.
    pub fn begin(&self, telemetry: Option<&Telemetry>, request: &Request) {
        let Some(telemetry) = telemetry else {
            return;
        };
        let path = request.uri().path();
        let known = COMPUTED.into_iter().find(|(known, _)| *known == path);
        let Some((path, operation)) = known.filter(|_| request.method() == Method::POST) else {
            return;
        };
        let mut span = telemetry.begin(format!("POST {path}"), request.headers());
        span.set_attributes([
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", path),
            KeyValue::new("gen_ai.operation.name", operation),
            KeyValue::new("gen_ai.provider.name", env!("CARGO_PKG_NAME")),
        ]);
        if let Some(id) = request.extensions().get::<RequestId>() {
            let id = id.as_str().to_owned();
            span.set_attribute(KeyValue::new("gen_ai.request.id", id));
        }
        self.0.get_or_init(|| {
            Mutex::new(Told {
                span,
                operation,
                began: Instant::now(),
                is_under_way: false,
                has_first: false,
                num_output_tokens: 0,
                reasons: Vec::new(),
            })
        });
    }

    /// That of a request on its way.
    pub fn of(request: &Request) -> Self {
        let span = request.extensions().get::<Self>();
        span.cloned().unwrap_or_default()
    }

    fn told(&self) -> Option<MutexGuard<'_, Told>> {
        let told = self.0.get()?;
        Some(told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An engine has it: the model, the answer's name, and the tokens of all prompts.
    pub fn asked(&self, model: &str, id: &str, num_input_tokens: usize) {
        let Some(mut told) = self.told() else {
            return;
        };
        told.is_under_way = true;
        let name = format!("{} {model}", told.operation);
        told.span.update_name(name);
        told.span.set_attributes([
            KeyValue::new("gen_ai.request.model", model.to_owned()),
            KeyValue::new("gen_ai.response.model", model.to_owned()),
            KeyValue::new("gen_ai.usage.input_tokens", count(num_input_tokens)),
        ]);
        if !id.is_empty() {
            let id = KeyValue::new("gen_ai.response.id", id.to_owned());
            told.span.set_attribute(id);
        }
    }

    /// How its answers are drawn.
    pub fn sampled(&self, params: &SamplingParams) {
        let Some(mut told) = self.told() else {
            return;
        };
        told.span.set_attributes([
            KeyValue::new("gen_ai.request.max_tokens", count(params.max_tokens)),
            KeyValue::new("gen_ai.request.temperature", f64::from(params.temperature)),
            KeyValue::new("gen_ai.request.top_p", f64::from(params.top_p)),
            KeyValue::new("gen_ai.request.choice.count", count(params.n)),
        ]);
    }

    /// A piece of an answer.
    pub fn gained(&self, gained: &RequestOutput) {
        let Some(mut told) = self.told() else {
            return;
        };
        let output = &gained.output;
        if !std::mem::replace(&mut told.has_first, true) {
            let first = told.began.elapsed().as_secs_f64();
            let queue = output.metrics.queue().unwrap_or_default().as_secs_f64();
            told.span.set_attributes([
                KeyValue::new("gen_ai.latency.time_to_first_token", first),
                KeyValue::new("gen_ai.latency.time_in_queue", queue),
                KeyValue::new(
                    "gen_ai.usage.cache_read.input_tokens",
                    count(output.num_cached_tokens),
                ),
            ]);
        }
        told.num_output_tokens += output.token_ids.len();
        if let Some(Ok(reason)) = &output.finished {
            told.reasons.push(reason.as_str().into());
        }
    }

    /// All is answered, or nothing more, for this reason.
    pub fn ended(&self, error: Option<&ApiError>) {
        let Some(mut told) = self.told() else {
            return;
        };
        told.is_under_way = false;
        let Some(error) = error else {
            return;
        };
        let status = error.status.as_u16();
        let kind = error.code.map(Value::from);
        let kind = kind.unwrap_or_else(|| status.to_string().into());
        told.span.set_attribute(KeyValue::new("error.type", kind));
        // What is a client's fault is none of the server's.
        if status >= 500 {
            told.span.set_status(Status::error(error.message.clone()));
        }
    }

    /// The answer's head says this.
    pub fn answered(&self, status: u16) {
        if let Some(mut told) = self.told() {
            let status = KeyValue::new("http.response.status_code", i64::from(status));
            told.span.set_attribute(status);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if self.has_first {
            let tokens = count(self.num_output_tokens);
            self.span
                .set_attribute(KeyValue::new("gen_ai.usage.output_tokens", tokens));
        }
        if !self.reasons.is_empty() {
            let reasons = Value::Array(Array::String(std::mem::take(&mut self.reasons)));
            self.span
                .set_attribute(KeyValue::new("gen_ai.response.finish_reasons", reasons));
        }
        if self.is_under_way {
            self.span
                .set_attribute(KeyValue::new("error.type", "client_gone"));
        }
        self.span.end();
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
