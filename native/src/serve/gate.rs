//! Whether the server still takes a request, which then runs until it is answered. Knows not what it asks.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api_error::ApiError;
use super::app::App;
use super::guarded_body::GuardedBody;

/// Answered also while the server ends: they say that it does.
pub const WATCHED: [&str; 5] = ["/health", "/metrics", "/version", "/get_load", "/steps"];

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
        // Nothing else that it would send is answered.
        None => ([(CONNECTION, "close")], ApiError::shutting_down()).into_response(),
    }
}
