//! What every request passes: its name, its line in the log, its place in the counts, and whether the server
//! still takes it.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api_error::ApiError;
use super::app::App;
use super::guarded_body::GuardedBody;
use super::request_id::{self, RequestId};
use super::request_span::RequestSpan;

/// Answered also while the server ends: they say that it does.
const WATCHED: [&str; 5] = ["/health", "/metrics", "/version", "/get_load", "/steps"];

/// Written when a request is over, whatever ended it.
struct Line {
    app: Arc<App>,
    id: RequestId,
    method: Method,
    path: String,
    /// None where the client went before there was an answer.
    status: Option<u16>,
    began: Instant,
    span: RequestSpan,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Self {
            id,
            method,
            path,
            status,
            ..
        } = self;
        let ms = self.began.elapsed().as_millis() as u64;
        // As nginx counts clients that go.
        let status = status.unwrap_or(499);
        self.app.http_metrics.count(path, status);
        self.span.answered(status);
        let id = id.as_str();
        tracing::info!(target: "access", %method, path = %path.escape_default(), status, ms, id);
    }
}

/// Names a request, and notes it when it is over.
pub async fn log(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = app.numbers.request_id(request.headers());
    let path: String = request.uri().path().chars().take(200).collect();
    let mut line = Line {
        id: id.clone(),
        method: request.method().clone(),
        path,
        status: None,
        began: Instant::now(),
        span: RequestSpan::default(),
        app,
    };
    let header = id.header();
    request.extensions_mut().insert(id);
    // It begins once the request is let in.
    request.extensions_mut().insert(line.span.clone());
    let mut response = next.run(request).await;
    line.status = Some(response.status().as_u16());
    if let Some(error) = response.extensions().get::<ApiError>() {
        line.span.ended(Some(error));
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
