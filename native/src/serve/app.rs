//! What all handlers share, and which handler has which path. Knows no socket.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use super::allowed_hosts::{self, AllowedHosts};
use super::api_error::ApiError;
use super::auth::{self, ApiKeys};
use super::body_room::BodyRoom;
use super::http_metrics::HttpMetrics;
use super::models::Models;
use super::reading::Reading;
use super::request_id::Numbers;
use super::shutdown::Shutdown;
use super::telemetry::Telemetry;
use super::{
    access, cors, embeddings, generate, messages, metrics, openapi, page, responses, status, steps,
    tokens,
};
use crate::output;

/// Bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Longest body, bytes.
    pub max_body: usize,
    /// Time for a body to come.
    pub body_timeout: Duration,
    /// Time for a whole request.
    pub request_timeout: Duration,
    /// Between comments in a stream while there is nothing to say.
    pub ping_interval: Duration,
}

/// What all handlers share.
#[derive(Debug)]
pub struct App {
    /// The models.
    pub models: Models,
    /// Bounds.
    pub settings: Settings,
    /// Who is let in.
    pub keys: ApiKeys,
    /// What it may be called.
    pub allowed_hosts: AllowedHosts,
    /// Pages of these origins may ask.
    pub cors_origins: Vec<HeaderValue>,
    /// How it ends.
    pub shutdown: Shutdown,
    /// What all bodies may hold.
    pub body_room: BodyRoom,
    /// Where bodies are read.
    pub reading: Reading,
    /// Names and seeds.
    pub numbers: Numbers,
    /// Requests by path and status.
    pub http_metrics: HttpMetrics,
    /// Where spans go, if anywhere.
    pub telemetry: Option<Telemetry>,
    /// When it began, seconds of the epoch.
    pub created: u64,
}

impl App {
    /// An app that has answered nothing.
    pub fn new(models: Models, settings: Settings, keys: ApiKeys) -> Self {
        Self {
            models,
            settings,
            keys,
            allowed_hosts: AllowedHosts::default(),
            cors_origins: Vec::new(),
            shutdown: Shutdown::default(),
            body_room: BodyRoom::new(settings.max_body),
            reading: Reading::new(num_cores()),
            numbers: Numbers::default(),
            http_metrics: HttpMetrics::default(),
            telemetry: None,
            created: now(),
        }
    }
}

/// Cores of this host, as far as it says.
pub fn num_cores() -> usize {
    thread::available_parallelism().map_or(2, Into::into)
}

/// Seconds of the epoch.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO).as_secs()
}

/// Paths of the server, as its counts call them.
pub const PATHS: [&str; 16] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/models",
    "/v1/models/{model}",
    "/tokenize",
    "/detokenize",
    "/health",
    "/metrics",
    "/version",
    "/get_load",
    "/steps",
    "/openapi.json",
];

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
        .layer(from_fn_with_state(Arc::clone(&app), access::gate))
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
        .layer(from_fn(access::no_sniff))
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
