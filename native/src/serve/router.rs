//! Which handler has which path, and what every request passes on its way there. Knows no socket.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use super::api_error::ApiError;
use super::app::App;
use super::{
    access, allowed_hosts, auth, cors, embeddings, gate, generate, messages, metrics, openapi,
    page, responses, status, steps, tokens,
};
use crate::output;

/// Every path and its handler, behind what all requests pass: the log and the count, the shape of errors, a net
/// for panics, the server's names, pages of other origins, keys, and the end of the server.
pub fn router(app: Arc<App>) -> Router {
    let cors = cors::layer(&app.cors_origins);
    let router = Router::new()
        .route("/", get(page::page))
        .route("/v1/chat/completions", post(generate::chat))
        .route("/v1/completions", post(generate::completions))
        .route("/v1/responses", post(responses::respond))
        .route("/v1/messages", post(messages::message))
        .route("/v1/messages/count_tokens", post(messages::count))
        .route("/v1/embeddings", post(embeddings::embed))
        .route("/v1/models", get(status::models))
        // A name may hold slashes.
        .route("/v1/models/{*model}", get(status::model))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/health", get(status::health))
        .route("/metrics", get(metrics::metrics))
        .route("/version", get(status::version))
        .route("/get_load", get(status::load))
        .route("/steps", get(steps::steps))
        .route("/openapi.json", get(openapi::openapi))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(from_fn_with_state(Arc::clone(&app), gate::gate))
        .layer(from_fn_with_state(Arc::clone(&app), auth::admit));
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router
        .layer(from_fn_with_state(Arc::clone(&app), allowed_hosts::check))
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::fault().into_response()
        }))
        .layer(from_fn(messages::shape))
        .layer(from_fn_with_state(Arc::clone(&app), access::log))
        .layer(from_fn(no_sniff))
        .with_state(app)
}

async fn unknown_path(uri: Uri) -> ApiError {
    let path = output::beginning(uri.path());
    let said = format!("there is no path {path:?}: /openapi.json says which there are");
    ApiError::new(StatusCode::NOT_FOUND, said).code("unknown_path")
}

async fn wrong_method(uri: Uri) -> ApiError {
    let said = format!("{} takes another method", output::beginning(uri.path()));
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, said).code("wrong_method")
}

/// Browsers are to take nothing here for a page.
async fn no_sniff(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
