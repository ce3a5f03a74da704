//! `/tokenize` and `/detokenize`: from text or messages to ids and back, as the model would have them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::answer_room::AnswerHold;
use super::api_error::ApiError;
use super::app::App;
use super::intake::{self, within};
use super::lease::Lease;
use super::request_body::RequestBody;
use super::whole_body::WholeBody;
use crate::openai::Serving;
use crate::openai::tokens::{Detokenized, Tokenized};

/// Answers a body within what its answer holds.
type Answer = fn(&Value, &Serving<'_>, AnswerHold) -> Result<WholeBody, ApiError>;

/// `/tokenize`.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let answer: Answer = |body, serving, mut hold| {
        let tokenized = Tokenized::read(body, serving)?;
        hold.gain(tokenized.num_bytes())?;
        WholeBody::json(&tokenized, hold)
    };
    read(&app, request, answer).await
}

/// `/detokenize`.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let answer: Answer = |body, serving, mut hold| {
        let detokenized = Detokenized::read(body, serving)?;
        hold.gain(detokenized.num_bytes())?;
        WholeBody::json(&detokenized, hold)
    };
    read(&app, request, answer).await
}

async fn read(app: &App, request: Request, answer: Answer) -> Result<Response, ApiError> {
    within(app, async |_| {
        let hold = app.answer_room.begin();
        let look = move |lease: Lease, body: RequestBody| {
            answer(&body.value()?, &lease.loaded().serving(), hold)
        };
        let body = intake::read(app, request, |_| Ok(()), look).await?;
        Ok(body.alone().into_response())
    })
    .await
}
