//! What every request passes first: it is named, and what becomes of it is known when it is over. Knows not how that is told.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::access_line::AccessLine;
use super::api_error::ApiError;
use super::app::App;
use super::client_address::client_address;
use super::guarded_body::GuardedBody;
use super::request_id;
use super::request_record::RequestRecord;
use super::request_span::RequestSpan;
use crate::output;

/// Names a request, and notes it when it is over.
pub async fn log(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = app.numbers.request_id(request.headers());
    let telemetry = app.telemetry.as_ref();
    let mut line = AccessLine {
        id: id.clone(),
        method: output::beginning(request.method().as_str()),
        path: output::beginning(request.uri().path()),
        client: client_address(&request),
        reads_too_little: request.extensions().get().cloned().unwrap_or_default(),
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
