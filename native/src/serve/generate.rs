//! `/v1/chat/completions` and `/v1/completions`: from a body to requests of an engine. What is answered, whole
//! or in pieces, is `whole`'s and `stream`'s.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use twoclock_core::engine::handle::RequestStream;
use twoclock_core::engine::{EngineHandle, Prompt};
use twoclock_core::error::Error;
use twoclock_core::sched::RequestError;
use twoclock_core::types::{SamplingParams, TokenId};

use super::api_error::{ApiError, submit_error};
use super::app::{App, now};
use super::models::Lease;
use super::request_body::RequestBody;
use super::request_id::RequestId;
use super::{stream, whole};
use crate::openai::{Asked, Endpoint, Refusal};

/// A request that engines compute.
#[derive(Debug)]
pub struct Job {
    /// The answer's name.
    pub id: String,
    /// When it was asked, seconds of the epoch.
    pub created: u64,
    /// The model, kept as long as it is needed.
    pub lease: Lease,
    /// What was asked; its prompts are in `prompts`.
    pub asked: Asked,
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<TokenId>>,
    /// The answers to each prompt.
    pub streams: Vec<RequestStream>,
    /// When its time is over.
    pub deadline: Instant,
}

/// `/v1/chat/completions`.
pub async fn chat(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    answer(&app, Endpoint::Chat, &id, request).await
}

/// `/v1/completions`.
pub async fn completions(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    answer(&app, Endpoint::Completions, &id, request).await
}

async fn answer(
    app: &App,
    endpoint: Endpoint,
    id: &RequestId,
    request: Request,
) -> Result<Response, ApiError> {
    let deadline = Instant::now() + app.settings.request_timeout;
    let answered = async {
        let body = RequestBody::read(request, &app.settings, &app.body_room).await?;
        let (lease, body) = lease(app, body).await?;
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completions => "cmpl",
        };
        let id = format!("{prefix}-{}", id.as_str());
        let seed = app.numbers.next();
        // Reading templates, tokens and forms takes the processor.
        let job = spawn_blocking(move || Job::submit(endpoint, id, lease, body, seed, deadline));
        let job = job.await.map_err(|_| fault())??;
        match job.asked.stream {
            true => Ok(stream::answer(job, app.settings.ping_interval)),
            false => whole::answer(job).await,
        }
    };
    match timeout_at(deadline, answered).await {
        Ok(answered) => answered,
        Err(_) => Err(ApiError::timed_out()),
    }
}

/// The model that a body names.
///
/// # Errors
/// The body is no JSON object, or there is no such model.
pub async fn lease(app: &App, body: RequestBody) -> Result<(Lease, RequestBody), ApiError> {
    let named = spawn_blocking(move || (body.model(), body));
    let (name, body) = named.await.map_err(|_| fault())?;
    let lease = app.models.lease(name?.as_deref()).await?;
    Ok((lease, body))
}

/// What reading a request met that it should not.
pub fn fault() -> ApiError {
    ApiError::internal("reading this request met a fault of the server")
}

impl Job {
    /// Reads a body and hands its prompts to the engine.
    fn submit(
        endpoint: Endpoint,
        id: String,
        lease: Lease,
        body: RequestBody,
        seed: u64,
        deadline: Instant,
    ) -> Result<Self, ApiError> {
        let value = body.value()?;
        let loaded = lease.loaded();
        let mut asked = Asked::read(endpoint, &value, &loaded.serving(), seed)?;
        drop((value, body));
        if asked.stream && asked.scores_prompt {
            let said = "prompt_logprobs is not served for a stream: ask for the answer whole";
            return Err(Refusal::of("prompt_logprobs", said).into());
        }
        let mut job_prompts = Vec::new();
        let mut streams = Vec::new();
        for prompt in std::mem::take(&mut asked.prompts) {
            let added = submit(loaded.handle(), prompt, &asked, loaded.max_model_len());
            let (ids, stream) = added?;
            job_prompts.push(ids);
            streams.push(stream);
        }
        Ok(Self {
            id,
            created: now(),
            lease,
            asked,
            prompts: job_prompts,
            streams,
            deadline,
        })
    }
}

fn submit(
    handle: &EngineHandle,
    prompt: Prompt,
    asked: &Asked,
    max_model_len: usize,
) -> Result<(Vec<TokenId>, RequestStream), ApiError> {
    let refuse = |error: &Error| asked.refusal(error);
    let ids = prompt.into_token_ids(handle.tokenizer());
    let ids = ids.map_err(|error| refused(&error.into(), asked))?;
    let SamplingParams { max_tokens, .. } = asked.params;
    let room = usize::from(max_tokens > 0);
    // The engine says the same, but only once it looks, when a stream would have begun.
    if ids.len() + room > max_model_len {
        let error = RequestError::PromptTooLong {
            num_prompt_tokens: ids.len(),
            room,
            max_model_len,
        };
        return Err(refused(&error.into(), asked).code("context_length_exceeded"));
    }
    let prompt = Prompt::TokenIds(ids.clone());
    let stream = handle
        .submit(prompt, asked.params.clone())
        .map_err(|error| submit_error(&error, refuse))?;
    Ok((ids, stream))
}

fn refused(error: &Error, asked: &Asked) -> ApiError {
    match asked.refusal(error) {
        Some(refusal) => refusal.into(),
        None => ApiError::internal(error.to_string()),
    }
}

/// What one of several answers met by itself.
pub fn answer_error(error: &RequestError) -> ApiError {
    match error {
        // What shows only while an answer is drawn may be the request's fault as well.
        RequestError::StructuredOutput(_) | RequestError::EverythingBanned { .. } => {
            ApiError::bad_request(error.to_string())
        }
        error => ApiError::internal(error.to_string()),
    }
}
