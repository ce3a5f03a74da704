//! Answers that come whole: gathered from the engine's pieces, then one body.

use std::time::Duration;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use twoclock_core::engine::{Completion, RequestMetrics};
use twoclock_core::types::FinishReason;

use super::answers::Answers;
use super::api_error::{ApiError, stream_error};
use super::generate::{Job, answer_error};
use crate::openai::{Answered, Choice, Usage};

/// Gathers the answers of a job. Dropped, it gives them up.
///
/// # Errors
/// One of them failed; or they end because the server does.
pub async fn answer(job: Job) -> Result<Response, ApiError> {
    let Job {
        id,
        created,
        lease,
        asked,
        prompts,
        streams,
        deadline: _,
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
    let mut answers = Answers::new(streams);
    while let Some((place, piece)) = answers.next().await {
        let piece = piece.map_err(|e| stream_error(&e, |error| asked.refusal(error)))?;
        let choice = &mut choices[place * n + piece.output.index];
        choice.text.push_str(&piece.text);
        let taken = choice.completion.take(piece.output);
        taken.map_err(|error| answer_error(&error))?;
        if choice.completion.finish_reason == Some(FinishReason::Abort) {
            return Err(ApiError::shutting_down());
        }
    }
    let mut usage = Usage::default();
    for Choice { completion, .. } in &choices {
        usage.completion_tokens += completion.token_ids.len();
        if completion.index == 0 {
            usage.prompt_tokens += completion.prompt_token_ids.len();
            usage.cached_tokens += completion.num_cached_tokens;
        }
    }
    let answered = Answered {
        endpoint: asked.endpoint,
        id: &id,
        created,
        model: lease.name(),
        choices: &choices,
        usage,
        scores_prompt: asked.scores_prompt,
        echoes: asked.echoes(),
    };
    let body = answered.body(lease.loaded().handle().tokenizer());
    Ok(json(&body))
}

/// A body as JSON.
pub fn json(body: &serde_json::Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}
