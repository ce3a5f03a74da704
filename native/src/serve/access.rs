//! What every request passes: its name, its line in the log, its place in the counts, and whether the server
//! still takes it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api_error::ApiError;
use super::app::App;
use super::auth::Sender;
use super::guarded_body::GuardedBody;
use super::request_id::{self, RequestId};
use super::request_record::RequestRecord;
use super::request_span::RequestSpan;
use crate::output;

/// Answered also while the server ends: they say that it does.
const WATCHED: [&str; 5] = ["/health", "/metrics", "/version", "/get_load", "/steps"];

/// The status of who goes first, as nginx counts them.
const GONE: u16 = 499;

/// Written when a request is over, whatever ended it.
struct Line {
    app: Arc<App>,
    id: RequestId,
    method: String,
    path: String,
    client: Option<IpAddr>,
    /// None where the client went before there was an answer.
    status: Option<u16>,
    record: RequestRecord,
    /// Where spans are wished for.
    span: Option<RequestSpan>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Self {
            app,
            id,
            method,
            path,
            status,
            ..
        } = self;
        let fault = thread::panicking().then(ApiError::fault);
        if fault.is_some() {
            // It unwinds what answers, which is no client's doing.
            self.record.ended(fault.as_ref());
        }
        // Taken out, so that who still answers does not wait for what is written.
        let facts = self.record.take();
        let duration_ms = milliseconds(facts.began.elapsed());
        let is_gone = status.is_none() || facts.is_under_way;
        let gone = fault.map_or(GONE, |fault| fault.status.as_u16());
        let status = status.unwrap_or(gone);
        // What ended it in place of its end, and the status that it has or would have had.
        let (error, wanted) = match &facts.error {
            Some(error) => (Some(error.word()), error.status.as_u16()),
            None if is_gone => (Some("client_gone"), GONE),
            None => (None, status),
        };
        app.http_metrics.count(path, status);
        if wanted != status {
            app.http_metrics.count_cut(path, wanted);
        }
        let param = facts.error.as_ref().and_then(|e| e.param.as_deref());
        let param = param.map(output::beginning);
        let param = param.as_deref();
        // What a client did wrong it was told; its words may have some of the request's.
        let fault = facts.error.as_ref().filter(|e| e.status.is_server_error());
        let error_message = fault.map(|fault| output::beginning(&fault.message));
        let error_message = error_message.as_deref();
        if let (Some(span), Some(telemetry)) = (self.span.take(), &app.telemetry)
            && facts.sender.is_some()
        {
            span.end(telemetry, id, &facts, status, error);
        }
        let id = id.as_str();
        let path_shown = path.escape_default();
        let client = self.client.map(|client| client.to_string());
        let key = match facts.sender {
            Some(Sender::Key(line)) => Some(line),
            Some(Sender::Anyone) | None => None,
        };
        let asked = facts.asked.as_ref();
        let model = facts.model.as_deref().map(output::beginning);
        let model = model.as_deref();
        let streamed = asked.map(|asked| asked.is_streamed);
        let prompt_tokens = asked.map(|asked| asked.num_prompt_tokens);
        let cached_tokens = asked.map(|_| facts.num_cached_tokens());
        let preemptions = asked.map(|_| facts.num_preemptions);
        let output_tokens = asked.map(|_| facts.num_output_tokens);
        let load_ms = facts.load.map(milliseconds);
        let queue_ms = facts.queue.map(milliseconds);
        let ttft_ms = facts.ttft.map(milliseconds);
        let reason = facts.finish_reason();
        let finish_reason = (!reason.is_empty()).then_some(&*reason);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "access", %method, path = %path_shown, status, duration_ms, id, client, key, model, streamed,
                    prompt_tokens, cached_tokens, output_tokens, preemptions, load_ms, queue_ms, ttft_ms, finish_reason,
                    error, param, error_message
                )
            };
        }
        // What watches the server asks again and again.
        match WATCHED.contains(&&**path) && status < 400 {
            true => line!(debug),
            false => line!(info),
        }
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Where a request came from: from the proxy, where there is one.
pub fn client(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|ConnectInfo(peer)| peer.ip().to_canonical())
}

/// Names a request, and notes it when it is over.
pub async fn log(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = app.numbers.request_id(request.headers());
    let telemetry = app.telemetry.as_ref();
    let mut line = Line {
        id: id.clone(),
        method: output::beginning(request.method().as_str()),
        path: output::beginning(request.uri().path()),
        client: client(&request),
        status: None,
        record: RequestRecord::default(),
        span: telemetry.and_then(|telemetry| RequestSpan::begin(telemetry, &request)),
        app,
    };
    let header = id.header();
    request.extensions_mut().insert(id);
    request.extensions_mut().insert(line.record.clone());
    let mut response = next.run(request).await;
    line.status = Some(response.status().as_u16());
    if let Some(error) = response.extensions().get::<ApiError>() {
        line.record.ended(Some(error));
    }
    response.headers_mut().insert(request_id::HEADER, header);
    response.map(|body| GuardedBody::wrap(body, line))
}

/// Counts a request as long as it runs, and takes none when the server ends.
pub async fn gate(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if WATCHED.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match app.shutdown.enter() {
        Some(running) => {
            let response = next.run(request).await;
            response.map(|body| GuardedBody::wrap(body, running))
        }
        None => ApiError::shutting_down().into_response(),
    }
}

/// Browsers are to take nothing here for a page.
pub async fn no_sniff(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
