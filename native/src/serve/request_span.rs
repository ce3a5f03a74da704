//! The span of a request, in the names of OpenTelemetry's conventions for generative AI, and of vLLM where those have
//! none. Knows no request that is still under way: it tells of one that is over.

use std::net::IpAddr;
use std::time::SystemTime;

use axum::extract::Request;
use axum::http::Method;
use opentelemetry::trace::{Span as _, Status};
use opentelemetry::{Array, Context, KeyValue, Value};

use super::auth::Sender;
use super::client_address::client_address;
use super::request_id::RequestId;
use super::request_record::Facts;
use super::telemetry::Telemetry;

/// Requests that engines compute, and what the conventions call that.
const COMPUTED: [(&str, &str); 5] = [
    ("/v1/chat/completions", "chat"),
    ("/v1/completions", "text_completion"),
    ("/v1/responses", "chat"),
    ("/v1/messages", "chat"),
    ("/v1/embeddings", "embeddings"),
];

/// When a span began, and in which trace.
#[derive(Debug)]
pub struct RequestSpan {
    path: &'static str,
    operation: &'static str,
    parent: Context,
    client: Option<IpAddr>,
    began: SystemTime,
}

impl RequestSpan {
    /// Begins, if the request is one to be computed.
    pub fn begin(telemetry: &Telemetry, request: &Request) -> Option<Self> {
        let path = request.uri().path();
        let known = COMPUTED.into_iter().find(|(known, _)| *known == path);
        let (path, operation) = known.filter(|_| request.method() == Method::POST)?;
        Some(Self {
            path,
            operation,
            parent: telemetry.parent(request.headers()),
            client: client_address(request),
            began: SystemTime::now(),
        })
    }

    /// Tells of the request, which is over: what is known of it, the status of its head, and what ended it in place
    /// of its end.
    pub fn end(
        self,
        telemetry: &Telemetry,
        id: &RequestId,
        facts: &Facts,
        status: u16,
        error: Option<&str>,
    ) {
        let name = match &facts.model {
            Some(model) => format!("{} {model}", self.operation),
            None => format!("POST {}", self.path),
        };
        let mut span = telemetry.begin(name, &self.parent, self.began);
        let mut tell = |name: &'static str, value: Value| {
            span.set_attribute(KeyValue::new(name, value));
        };
        tell("http.request.method", "POST".into());
        tell("http.route", self.path.into());
        tell("http.response.status_code", i64::from(status).into());
        if let Some(client) = self.client {
            tell("client.address", client.to_string().into());
        }
        if let Some(Sender::Owner(owner)) = &facts.sender {
            tell("enduser.id", owner.to_string().into());
        }
        tell("gen_ai.operation.name", self.operation.into());
        tell("gen_ai.provider.name", env!("CARGO_PKG_NAME").into());
        tell("gen_ai.request.id", id.as_str().to_owned().into());
        if let Some(model) = &facts.model {
            tell("gen_ai.request.model", model.clone().into());
        }
        if let (Some(asked), Some(model)) = (&facts.asked, &facts.model) {
            tell("gen_ai.response.model", model.clone().into());
            tell(
                "gen_ai.usage.input_tokens",
                count(asked.num_prompt_tokens).into(),
            );
            if !asked.answer_id.is_empty() {
                tell("gen_ai.response.id", asked.answer_id.clone().into());
            }
            if let Some(params) = &asked.sampling {
                tell("gen_ai.request.max_tokens", count(params.max_tokens).into());
                tell(
                    "gen_ai.request.temperature",
                    f64::from(params.temperature).into(),
                );
                tell("gen_ai.request.top_p", f64::from(params.top_p).into());
                tell("gen_ai.request.choice.count", count(params.n).into());
            }
        }
        if let Some(queue) = facts.queue {
            tell("gen_ai.latency.time_in_queue", queue.as_secs_f64().into());
            let cached = count(facts.num_cached_tokens());
            tell("gen_ai.usage.cache_read.input_tokens", cached.into());
        }
        if let Some(ttft) = facts.ttft {
            let ttft = ttft.as_secs_f64();
            tell("gen_ai.latency.time_to_first_token", ttft.into());
            let tokens = count(facts.num_output_tokens);
            tell("gen_ai.usage.output_tokens", tokens.into());
        }
        if !facts.reasons.is_empty() {
            let reasons = facts.reasons.iter().map(|reason| reason.as_str().into());
            let reasons = Array::String(reasons.collect());
            tell("gen_ai.response.finish_reasons", Value::Array(reasons));
        }
        if let Some(error) = error {
            tell("error.type", error.to_owned().into());
        }
        // What is a client's fault is none of the server's.
        if let Some(error) = &facts.error
            && error.status.is_server_error()
        {
            span.set_status(Status::error(error.message.clone()));
        }
        span.end();
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
