//! Where spans of requests go: to a collector of OpenTelemetry, by OTLP over HTTP (protobuf), from a thread of its
//! own with a bounded queue. A collector that is slow or away loses spans and keeps nobody waiting. Knows not what a
//! span says.

use std::env;
use std::future::ready;
use std::io::Read;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use axum::http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanKind, Tracer, TracerProvider};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use url::Url;

use crate::http::Http;

/// The service's name, where the environment gives no other.
const NAME: &str = env!("CARGO_PKG_NAME");
/// The address of spans alone, as it is, and the one below which all go.
const OF_SPANS: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const OF_ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// How they go.
const PROTOCOL: &str = "http/protobuf";
/// Where collectors take spans below their address.
const PATH: &str = "/v1/traces";
/// Time for a collector to take what it is sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for what is left when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Most bytes of a collector's answer.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Makes spans, and sends those that have ended.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

impl Telemetry {
    /// Sends to the collector at this address, else to the one that the environment names; `None` where neither does
    /// or the environment has it off. Names, headers, sampling and batches are as the variables of
    /// OpenTelemetry have them (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`,
    /// `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`).
    ///
    /// # Errors
    /// An address is none, the certificates that `PIP_CERT` names cannot be used, or a variable of OpenTelemetry is
    /// not as it must be. Nothing is asked there yet.
    pub fn start(address: Option<&str>) -> anyhow::Result<Option<Self>> {
        let endpoint = match address {
            Some(address) => Some(endpoint("--otlp-endpoint", address, true)?),
            None => named(|variable| env::var(variable).ok())?,
        };
        let Some(endpoint) = endpoint else {
            return Ok(None);
        };
        let shown = shown(&endpoint);
        tracing::info!(endpoint = shown, "requests are traced");
        let collector = Collector {
            http: Http::new()?,
            shown,
            is_away: AtomicBool::new(false),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(endpoint.as_str())
            .build()
            .context("spans cannot be sent")?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        Ok(Some(Self {
            tracer: provider.tracer(NAME),
            provider,
            propagator: TraceContextPropagator::new(),
        }))
    }

    /// The trace that a request's headers name (`traceparent`), if they do.
    pub fn parent(&self, headers: &HeaderMap) -> Context {
        self.propagator.extract(&HeaderExtractor(headers))
    }

    /// A span that began then, in this trace, or one of its own.
    pub fn begin(&self, name: String, parent: &Context, began: SystemTime) -> Span {
        let builder = self.tracer.span_builder(name);
        let builder = builder.with_kind(SpanKind::Server).with_start_time(began);
        self.tracer.build_with_context(builder, parent)
    }

    /// Sends what is left, so long as that takes no longer than it may: blocks.
    pub fn end(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST_WORDS) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

/// Where the environment has spans go, as OpenTelemetry's variables say it.
fn named(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Url>> {
    // One that is empty is as if it were not there.
    let variable = |name| variable(name).filter(|value| !value.trim().is_empty());
    let is = |name, word: &str| variable(name).is_some_and(|it| it.eq_ignore_ascii_case(word));
    let found = [(OF_SPANS, false), (OF_ALL, true)].map(|(name, is_base)| {
        let address = variable(name)?;
        Some(endpoint(name, address.trim(), is_base))
    });
    let Some(endpoint) = found.into_iter().flatten().next() else {
        return Ok(None);
    };
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let protocols = [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ];
    let protocol = protocols.into_iter().find_map(variable);
    if let Some(protocol) = protocol.filter(|it| it != PROTOCOL) {
        tracing::warn!(
            protocol,
            "requests are not traced: spans go by {PROTOCOL} alone; give --otlp-endpoint a collector that takes it"
        );
        return Ok(None);
    }
    endpoint.map(Some)
}

/// An address without what may be secret in it.
fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Where spans go: below the address that was given (`source` is what gave it), unless that says it all.
fn endpoint(source: &str, address: &str, is_base: bool) -> anyhow::Result<Url> {
    let url = Url::parse(address).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut url) = url else {
        // It may hold a password, and is not repeated.
        bail!("{source} is no URL: it is like http://localhost:4318");
    };
    if !is_base {
        return Ok(url);
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix(PATH).unwrap_or(path);
    let path = format!("{path}{PATH}");
    url.set_path(&path);
    Ok(url)
}

fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version.clone()).build();
    let name = resource.get(&Key::from_static_str("service.name"));
    match name {
        Some(name) if !name.as_str().starts_with("unknown_service") => resource,
        _ => Resource::builder()
            .with_attribute(version)
            .with_service_name(NAME)
            .build(),
    }
}

/// The collector, asked by the program's own client.
struct Collector {
    http: Http,
    /// Where it is.
    shown: String,
    /// It did not take what it was sent last.
    is_away: AtomicBool,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    fn send(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let url = Url::parse(&request.uri().to_string())?;
        let headers = request.headers().iter();
        let headers = headers.filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            Some((name.as_str(), value.to_owned()))
        });
        let headers: Vec<_> = headers.collect();
        let answer = self.http.post(&url, &headers, request.body(), PATIENCE)?;
        let (parts, mut body) = answer.into_parts();
        let mut bytes = Vec::new();
        let mut reader = body.as_reader().take(LONGEST_ANSWER);
        reader.read_to_end(&mut bytes)?;
        Ok(Response::from_parts(parts, bytes.into()))
    }

    /// Says in the log when the collector goes and when it is back, once each.
    fn watch(&self, answered: &Result<Response<Bytes>, HttpError>) {
        let error_message = match answered {
            Ok(answer) if answer.status().is_success() => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    tracing::info!("spans reach the collector again");
                }
                return;
            }
            Ok(answer) => format!("it answered {}", answer.status()),
            Err(error) => error.to_string(),
        };
        if !self.is_away.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                endpoint = self.shown,
                error_message,
                "spans do not reach the collector and are dropped"
            );
        }
    }
}

impl HttpClient for Collector {
    // Blocks, as it may: only the thread of the batches asks.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let answered = self.send(&request);
        self.watch(&answered);
        Box::pin(ready(answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_below_the_address() {
        for (address, expected) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            (
                "https://a.example/otlp/",
                "https://a.example/otlp/v1/traces",
            ),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
            ("http://a.example/v1/traces/", "http://a.example/v1/traces"),
        ] {
            assert_eq!(endpoint("--a", address, true).unwrap().as_str(), expected);
        }
        for wrong in ["", "localhost:4318", "ftp://a.example", "http://"] {
            let said = endpoint("--a", wrong, true).unwrap_err().to_string();
            assert!(said.contains("http://localhost:4318"), "{said}");
        }
    }

    #[test]
    fn the_environment_names_a_collector() {
        let of = |given: &[(&str, &str)]| {
            let given: Vec<_> = given
                .iter()
                .map(|&(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
            named(|name| {
                given
                    .iter()
                    .find(|(k, _)| k == name)
                    .map(|(_, v)| v.clone())
            })
        };
        let (base, whole) = ((OF_ALL, "http://a:4318"), (OF_SPANS, "http://b:4318/x"));
        let url = |given: &[_]| of(given).unwrap().map(String::from);
        assert_eq!(url(&[]), None);
        assert_eq!(url(&[(OF_ALL, "")]), None);
        assert_eq!(url(&[base]).unwrap(), "http://a:4318/v1/traces");
        assert_eq!(url(&[base, whole]).unwrap(), "http://b:4318/x");
        assert_eq!(url(&[base, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert_eq!(url(&[base, ("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(url(&[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), None);
        let said = of(&[(OF_ALL, "localhost")]).unwrap_err().to_string();
        assert!(said.starts_with(OF_ALL), "{said}");
        let secret = Url::parse("http://me:secret@a:4318/v1/traces?key=secret").unwrap();
        assert_eq!(shown(&secret), "http://a:4318/v1/traces");
    }
}
