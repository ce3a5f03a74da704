//! Answers that come whole: gathered from the engine's pieces, within the room that such answers have, then one body.

use std::time::Duration;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use twoclock_core::engine::{Completion, RequestMetrics, RequestOutput};
use twoclock_core::types::TokenLogprobs;

use super::answer_room::{AnswerHold, AnswerRoom};
use super::answers::Answers;
use super::api_error::{ApiError, stream_error};
use super::app::App;
use super::body_room::HeldRoom;
use super::job::{Job, answer_error};
use super::lease::Lease;
use super::reading::{Reading, SHORT};
use super::whole_body::WholeBody;
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
/// As [`gather`]; or there is no room for what it says.
pub async fn answer(job: Job, app: &App) -> Result<Response, ApiError> {
    let (whole, hold) = gather(job, &app.answer_room).await?;
    let write = move |hold| {
        let answered = Answered {
            endpoint: whole.asked.endpoint,
            id: &whole.id,
            created: whole.created,
            model: whole.lease.name(),
            choices: &whole.choices,
            usage: whole.usage,
            scores_prompt: whole.asked.scores_prompt,
            scored_echoes: whole.asked.scored_echoes(),
            format: &whole.asked.format,
            tokenizer: whole.lease.loaded().handle().tokenizer(),
        };
        WholeBody::json(&answered, hold)
    };
    told(&app.reading, hold, write).await
}

/// Most bytes gathered of an answer that is short when it is written: a log-probability becomes ten times as long.
const BRIEF: usize = SHORT / 10;

/// Has `write` say all that was gathered, of which it has what it holds, and which is not needed behind that. Where it
/// is long that takes its turn beside others: nobody else's tokens are to wait for it.
///
/// # Errors
/// There is no room for it.
pub async fn told(
    reading: &Reading,
    hold: AnswerHold,
    write: impl FnOnce(AnswerHold) -> Result<WholeBody, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let body = match hold.num_bytes() > BRIEF {
        true => reading.write(move || write(hold)).await?,
        false => write(hold),
    };
    Ok(body?.alone().into_response())
}

/// Gathers the answers of a job, and what of the room of answers they take. Dropped, or where it fails, it gives them
/// up.
///
/// # Errors
/// One of them failed; there is no room for more of them; or they end because the server does.
pub async fn gather(job: Job, room: &AnswerRoom) -> Result<(Gathered, AnswerHold), ApiError> {
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
        room: body_room,
    } = job;
    let n = asked.params.n;
    let mut hold = room.begin();
    let mut choices: Vec<Choice> = Vec::new();
    for (place, (prompt, stream)) in prompts.into_iter().zip(&streams).enumerate() {
        let echo = asked.echoes.get(place).cloned().unwrap_or_default();
        let bytes = size_of::<Choice>() + size_of_val(&*prompt) + echo.len();
        hold.gain(n.saturating_mul(bytes))?;
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
        hold.gain(num_bytes(&piece))?;
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
    let gathered = Gathered {
        id,
        created,
        lease,
        asked,
        echoed,
        choices,
        usage,
        _room: body_room,
    };
    Ok((gathered, hold))
}

/// Bytes that a piece takes.
fn num_bytes(piece: &RequestOutput) -> usize {
    let output = &piece.output;
    let scores = output.logprobs.iter().chain(&output.prompt_logprobs);
    let scores = scores.map(|scores| size_of::<TokenLogprobs>() + size_of_val(&*scores.top));
    piece.text.len() + size_of_val(&*output.token_ids) + scores.sum::<usize>()
}

/// As JSON, what is short whoever asks.
pub fn json(body: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_long_is_written_on_a_thread_of_its_own() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let (room, reading) = (AnswerRoom::new(1 << 20), Reading::new(2));
        for (bytes, is_elsewhere) in [(0, false), (BRIEF, false), (BRIEF + 1, true)] {
            let mut hold = room.begin();
            hold.gain(bytes).unwrap();
            let here = thread::current().id();
            let write = move |hold| {
                assert_eq!(thread::current().id() != here, is_elsewhere, "{bytes}");
                WholeBody::json(&bytes, hold)
            };
            runtime.block_on(told(&reading, hold, write)).unwrap();
        }
    }
}
