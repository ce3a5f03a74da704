//! `/v1/embeddings`: texts as vectors, computed among what others generate.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use twoclock_core::engine::Prompt;
use twoclock_core::engine::handle::RequestStream;
use twoclock_core::error::Error;
use twoclock_core::sched::RequestError;

use super::answers::Answers;
use super::api_error::{ApiError, stream_error, submit_error};
use super::app::App;
use super::asker::{Asker, StillAsked};
use super::body_room::{BodyRoom, HeldRoom};
use super::intake::{self, within};
use super::job::answer_error;
use super::lease::Lease;
use super::request_body::RequestBody;
use super::request_record::{AskedOf, RequestRecord};
use super::whole;
use super::whole_body::WholeBody;
use crate::openai::Refusal;
use crate::openai::embeddings::{AskedEmbeddings, Embeddings};
use crate::openai::engine_words;

/// Texts that were handed to an engine.
struct Texts {
    lease: Lease,
    streams: Vec<RequestStream>,
    num_tokens: usize,
    as_base64: bool,
    record: RequestRecord,
    /// What of the body's room they take as long as they are there.
    _room: HeldRoom,
}

/// `/v1/embeddings`.
pub async fn embed(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    within(&app, async |deadline| {
        let record = RequestRecord::of(&request);
        let asker = Asker::until(deadline);
        let (asked, body_room) = (asker.still_asked(), app.body_room.clone());
        let texts = move |lease, body| submit(lease, body, record, &asked, &body_room);
        gather(intake::read(&app, request, |_| Ok(()), texts).await?, &app).await
    })
    .await
}

fn submit(
    lease: Lease,
    body: RequestBody,
    record: RequestRecord,
    still_asked: &StillAsked,
    body_room: &BodyRoom,
) -> Result<Texts, ApiError> {
    let loaded = lease.loaded();
    let params = loaded.pooling().params();
    let params = params.map_err(|e| ApiError::bad_request(e.to_string()).param("model"))?;
    let value = body.value()?;
    let room = body.into_room();
    let asked = AskedEmbeddings::read(&value, params, loaded.serving().heeds_priority)?;
    drop(value);
    let most = loaded.serving().max_prompt_bytes.unwrap_or(usize::MAX);
    let mut prompts = Vec::with_capacity(asked.prompts.len());
    let together = loaded.handle().together_pooling(asked.params);
    let mut together = together.map_err(|error| submit_error(&error, refusal))?;
    let mut num_tokens = 0;
    for prompt in asked.prompts {
        still_asked.check()?;
        if let Prompt::Text(text) = &prompt
            && text.len() > most
        {
            let said = format!(
                "has a text of {} bytes, but {most} are the most for a context of {} tokens",
                text.len(),
                loaded.max_model_len()
            );
            return Err(Refusal::of("input", said).into());
        }
        let ids = prompt.into_token_ids(loaded.handle().tokenizer());
        let ids = ids.map_err(|e| Refusal::sentence("input", e))?;
        num_tokens += ids.len();
        prompts.push(ids);
    }
    let kept = together.num_bytes(prompts.len(), num_tokens);
    let room = body_room.exchange(room, kept)?;
    let mut streams = Vec::with_capacity(prompts.len());
    for ids in prompts {
        still_asked.check()?;
        let stream = together.submit(Prompt::TokenIds(ids));
        streams.push(stream.map_err(|error| submit_error(&error, refusal))?);
    }
    let of = AskedOf {
        answer_id: String::new(),
        num_prompt_tokens: num_tokens,
        is_streamed: false,
        sampling: None,
    };
    record.asked(of, streams.len());
    Ok(Texts {
        streams,
        num_tokens,
        as_base64: asked.as_base64,
        record,
        lease,
        _room: room,
    })
}

/// What the engine says against a text.
fn refusal(error: &Error) -> Option<Refusal> {
    let param = match error {
        Error::Text(_) => "input",
        Error::Request(RequestError::InvalidDimensions { .. }) => "dimensions",
        Error::Request(RequestError::InvalidParameter { name, .. }) => name,
        Error::Request(_) => "input",
        _ => return None,
    };
    Some(engine_words::refusal(param, error))
}

async fn gather(texts: Texts, app: &App) -> Result<Response, ApiError> {
    let Texts {
        lease,
        streams,
        num_tokens,
        as_base64,
        record,
        _room,
    } = texts;
    let mut hold = app.answer_room.begin();
    hold.gain(streams.len() * size_of::<Vec<f32>>())?;
    let mut vectors = vec![Vec::new(); streams.len()];
    let mut answers = Answers::new(streams);
    while let Some((place, piece)) = answers.next().await {
        let output = piece.map_err(|e| stream_error(&e, refusal))?.output;
        record.gained(place, &output);
        if let Some(Err(error)) = output.finished {
            return Err(answer_error(&error));
        }
        if let Some(values) = output.embedding {
            hold.gain(size_of_val(&*values))?;
            vectors[place] = values;
        }
    }
    record.ended(None);
    let write = move |hold| {
        let said = Embeddings {
            model: lease.name(),
            vectors: &vectors,
            num_tokens,
            as_base64,
        };
        WholeBody::json(&said, hold)
    };
    whole::told(&app.reading, hold, write).await
}
