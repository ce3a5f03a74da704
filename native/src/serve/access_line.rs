//! A request's line in the log, its place in the counts and its span: written when it is over, whatever ended it. Knows
//! not how it was answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::http::StatusCode;

use super::api_error::ApiError;
use super::app::App;
use super::auth::Sender;
use super::gate::WATCHED;
use super::request_id::RequestId;
use super::request_record::RequestRecord;
use super::request_span::RequestSpan;
use super::shutdown::Phase;
use super::write_limit::ReadsTooLittle;
use crate::output;

/// The status of who goes first, as nginx counts them.
const GONE: u16 = 499;
/// That of who does not read, likewise.
const TOO_SLOW: u16 = StatusCode::REQUEST_TIMEOUT.as_u16();

/// Written when a request is over, whatever ended it.
pub struct AccessLine {
    /// Whose counts it adds to.
    pub app: Arc<App>,
    /// Its name.
    pub id: RequestId,
    /// As a log may show it.
    pub method: String,
    /// The same.
    pub path: String,
    /// Where it came from.
    pub client: Option<IpAddr>,
    /// Whether it was given up.
    pub reads_too_little: ReadsTooLittle,
    /// None where the client went before there was an answer.
    pub status: Option<u16>,
    /// What those who answer it say.
    pub record: RequestRecord,
    /// Where spans are wished for.
    pub span: Option<RequestSpan>,
}

impl Drop for AccessLine {
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
            // The server had enough of it, or ended; else the client went.
            None if is_gone && self.reads_too_little.get() => (Some("write_timeout"), TOO_SLOW),
            None if is_gone && app.shutdown.phase() == Phase::Stopped => (
                Some("shutting_down"),
                StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            ),
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
        let key = match &facts.sender {
            Some(Sender::Owner(owner)) => Some(&**owner),
            Some(Sender::Anyone) | None => None,
        };
        let asked = facts.asked.as_ref();
        let answer_id = asked
            .map(|asked| &*asked.answer_id)
            .filter(|id| !id.is_empty());
        let model = facts.model.as_deref().map(output::beginning);
        let model = model.as_deref();
        let streamed = asked.map(|asked| asked.is_streamed);
        let sampling = asked.and_then(|asked| asked.sampling);
        let (n, max_tokens) = (sampling.map(|s| s.n), sampling.map(|s| s.max_tokens));
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
                    target: "access", %method, path = %path_shown, status, duration_ms, id, answer_id, client, key, model,
                    streamed, n, max_tokens, prompt_tokens, cached_tokens, output_tokens, preemptions, load_ms, queue_ms, ttft_ms,
                    finish_reason, error, param, error_message
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
