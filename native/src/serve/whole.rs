//! Answers that come whole: gathered from the engine's pieces, then one body.

use std::time::Duration;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use twoclock_core::engine::{Completion, RequestMetrics};

use super::answers::Answers;
use super::api_error::{ApiError, stream_error};
use super::body_room::HeldRoom;
use super::job::{Job, answer_error};
use super::lease::Lease;
use crate::openai::{Answered, Asked, Choice, Echoed, Usage};

/// All that was answered to a job.
#[derive(Debug)]
pub struct Gathered {
    /// The answer's name.
    pub id: String,
    /// When it was asked, seconds of the epoch.
    pub created: u64,
    /// The model.
    pub lease: Lease,
    /// What was asked.
    pub asked: Asked,
    /// What of the body its answer says again.
    pub echoed: Echoed,
    /// Of each prompt its answers.
    pub choices: Vec<Choice>,
    /// What they took.
    pub usage: Usage,
    /// Given back when it was told.
    _room: HeldRoom,
}

/// Answers in OpenAI's older form.
///
/// # Errors
/// As [`gather`].
pub async fn answer(job: Job) -> Result<Response, ApiError> {
    let whole = gather(job).await?;
    let answered = Answered {
        endpoint: whole.asked.endpoint,
        id: &whole.id,
        created: whole.created,
        model: whole.lease.name(),
        choices: &whole.choices,
        usage: whole.usage,
        scores_prompt: whole.asked.scores_prompt,
        scores_echo: whole.asked.scores_echo(),
        format: &whole.asked.format,
    };
    let tokenizer = whole.lease.loaded().handle().tokenizer();
    Ok(json(&answered.body(tokenizer)))
}

/// Gathers the answers of a job. Dropped, it gives them up.
///
/// # Errors
/// One of them failed; or they end because the server does.
pub async fn gather(job: Job) -> Result<Gathered, ApiError> {
    let Job {
        id,
        created,
        lease,
        asked,
        echoed,
        prompts,
        streams,
        deadline: _,
        record,
        room,
    } = job;
    let n = asked.params.n;
    let mut choices: Vec<Choice> = Vec::new();
    for (place, (prompt, stream)) in prompts.into_iter().zip(&streams).enumerate() {
        let echo = asked.echoes.get(place).cloned().unwrap_or_default();
        choices.extend((0..n).map(|index| Choice {
            completion: Completion::new(
                stream.id(),
                index,
                prompt.clone(),
                RequestMetrics::new(Duration::ZERO),
            ),
            text: echo.clone(),
        }));
    }
    let mut answers = Answers::of_format(streams, n, &asked.format);
    while let Some((place, piece)) = answers.next().await {
        let piece = piece.map_err(|e| stream_error(&e, |error| asked.refusal(error)))?;
        record.gained(place, &piece.output);
        let choice = &mut choices[place * n + piece.output.index];
        choice.text.push_str(&piece.text);
        let taken = choice.completion.take(piece.output);
        taken.map_err(|error| answer_error(&error))?;
    }
    record.ended(None);
    let mut usage = Usage::default();
    for Choice { completion, .. } in &choices {
        usage.completion_tokens += completion.token_ids.len();
        if completion.index == 0 {
            usage.prompt_tokens += completion.prompt_token_ids.len();
            usage.cached_tokens += completion.num_cached_tokens;
        }
    }
    Ok(Gathered {
        id,
        created,
        lease,
        asked,
        echoed,
        choices,
        usage,
        _room: room,
    })
}

/// A body as JSON.
pub fn json(body: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}
