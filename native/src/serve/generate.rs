//! `/v1/chat/completions` and `/v1/completions`. What becomes of a body is `job`'s; what is answered, whole or in
//! pieces, is `whole`'s and `stream`'s.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::api_error::ApiError;
use super::app::App;
use super::intake::within;
use super::job::{Protocol, begin};
use super::request_id::RequestId;
use super::{chunks, stream, whole};
use crate::openai::Endpoint;

/// `/v1/chat/completions`.
pub async fn chat(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let protocol = Protocol {
        endpoint: Endpoint::Chat,
        prefix: "chatcmpl-",
        translate: None,
        echoes: None,
        names: |_| Vec::new(),
    };
    answer(&app, protocol, &id, request).await
}

/// `/v1/completions`.
pub async fn completions(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let protocol = Protocol {
        endpoint: Endpoint::Completions,
        prefix: "cmpl-",
        translate: None,
        echoes: None,
        names: |_| Vec::new(),
    };
    answer(&app, protocol, &id, request).await
}

async fn answer(
    app: &App,
    protocol: Protocol,
    id: &RequestId,
    request: Request,
) -> Result<Response, ApiError> {
    let ping_interval = app.settings.ping_interval;
    within(app, async |deadline| {
        let job = begin(app, protocol, id, request, deadline).await?;
        match job.asked.stream {
            true => Ok(stream::answer(job, chunks::Teller::new, ping_interval)),
            false => whole::answer(job, app).await,
        }
    })
    .await
}
