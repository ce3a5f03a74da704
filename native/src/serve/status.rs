//! What there is and how it fares: `/v1/models`, `/health`, `/version`, `/get_load`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use twoclock_core::engine::handle::Health;

use super::api_error::ApiError;
use super::app::App;
use super::offered::Offered;
use super::shutdown::Phase;
use super::whole;
use crate::openai::models::{self, ModelCard};
use crate::output;

/// `/v1/models`.
pub async fn models(State(app): State<Arc<App>>) -> Response {
    let named = |(name, offered)| card(&app, name, offered);
    let cards: Vec<_> = all(&app).map(named).collect();
    whole::json(&models::list(&cards))
}

/// `/v1/models/{model}`.
pub async fn model(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(|_| {
        let said = "the name of a model must be UTF-8: /v1/models says which there are";
        ApiError::bad_request(said).param("model")
    })?;
    match all(&app).find(|(it, _)| *it == name) {
        Some((name, offered)) => Ok(whole::json(&card(&app, name, offered).as_json())),
        None => {
            let name = output::beginning(&name);
            let said = format!("there is no model {name:?} here");
            let error = ApiError::new(StatusCode::NOT_FOUND, said);
            Err(error.param("model").code("model_not_found"))
        }
    }
}

/// Each name, and what it is a name of.
fn all(app: &App) -> impl Iterator<Item = (&str, &Offered)> {
    let offered = app.models.offered();
    offered.flat_map(|offered| offered.names().map(move |name| (name, offered)))
}

fn card<'a>(app: &App, name: &'a str, offered: &Offered) -> ModelCard<'a> {
    let loaded = app.models.loaded();
    ModelCard {
        name,
        created: app.created,
        context_length: offered.context_length,
        is_loaded: loaded.iter().any(|(name, _)| *name == offered.name),
    }
}

/// `/health`: whether all that is loaded can compute and requests are taken. A model that could not be loaded makes
/// nobody else unwell, and is tried again only for requests, which must come: it is counted. Its name is for those who
/// have a key, since this needs none.
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let worst =
        app.models
            .loaded()
            .into_iter()
            .find_map(|(_, loaded)| match loaded.handle().health() {
                Health::Ready => None,
                Health::Recovering => Some("recovering"),
                Health::Failed => Some("failed"),
                Health::Stopped => Some("stopped"),
            });
    let ending = (app.shutdown.phase() != Phase::Open).then_some("shutting_down");
    let (status, word) = match ending.or(worst) {
        Some(word) => (StatusCode::SERVICE_UNAVAILABLE, word),
        None => (StatusCode::OK, "ok"),
    };
    let mut body = json!({"status": word});
    let num_failed = app.models.failed().len();
    if num_failed > 0 {
        body["failed_models"] = num_failed.into();
    }
    (status, whole::json(&body)).into_response()
}

/// `/version`.
pub async fn version() -> Response {
    whole::json(&json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `/get_load`: what each loaded model has to do, for routers.
pub async fn load(State(app): State<Arc<App>>) -> Response {
    let loads = app.models.loaded().into_iter().map(|(name, loaded)| {
        let load = loaded.handle().load();
        json!({
            "model": name,
            "num_reqs": load.num_requests,
            "num_running_reqs": load.num_running,
            "num_waiting_reqs": load.num_waiting,
            "num_unread_reqs": load.num_unread,
            "kv_cache_usage": f64::from(load.kv_usage_permille) / 1e3,
            "num_recoveries": load.num_recoveries,
        })
    });
    whole::json(&Value::Array(loads.collect()))
}
