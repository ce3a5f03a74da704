//! From a body to requests of an engine, whatever protocol it came in. Knows not how they are answered.

use std::sync::Arc;

use axum::extract::Request;
use serde_json::Value;
use tokio::time::Instant;
use twoclock_core::engine::Prompt;
use twoclock_core::engine::handle::{RequestStream, SubmitError};
use twoclock_core::error::Error;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::TokenId;

use super::api_error::{ApiError, submit_error};
use super::app::{App, now};
use super::asker::{Asker, StillAsked};
use super::body_room::{BodyRoom, HeldRoom};
use super::intake;
use super::lease::Lease;
use super::offered::Offered;
use super::request_body::RequestBody;
use super::request_id::RequestId;
use super::request_record::{AskedOf, RequestRecord};
use crate::openai::refusal::Name;
use crate::openai::{Asked, Echoed, Endpoint, Refusal};

/// Writes a body as another protocol's.
pub type Translate = fn(&Value) -> Result<Value, Refusal>;

/// What of a body is said again.
pub type Echo = fn(&Value) -> Result<Echoed, Refusal>;

/// How a protocol's bodies are read: as requests of OpenAI's chat or completions.
#[derive(Clone, Copy)]
pub struct Protocol {
    /// Which of the two.
    pub endpoint: Endpoint,
    /// What the names of its answers begin with.
    pub prefix: &'static str,
    /// A body as one of those, where it is another.
    pub translate: Option<Translate>,
    /// What of a body its answer says again, where it does.
    pub echoes: Option<Echo>,
    /// The names that what a chat reads has in a body of it.
    pub names: fn(&Value) -> Vec<Name>,
}

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
    /// What of the body its answer says again.
    pub echoed: Echoed,
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<TokenId>>,
    /// The answers to each prompt.
    pub streams: Vec<RequestStream>,
    /// When its time is over.
    pub deadline: Instant,
    /// What is known of it.
    pub record: RequestRecord,
    /// What of the body's room it takes as long as it is there.
    pub room: HeldRoom,
}

/// Reads a request and has it computed.
///
/// # Errors
/// What is wrong with it, with its model, or with the server.
pub async fn begin(
    app: &App,
    protocol: Protocol,
    id: &RequestId,
    request: Request,
    deadline: Instant,
) -> Result<Job, ApiError> {
    let record = RequestRecord::of(&request);
    let id = format!("{}{}", protocol.prefix, id.of_answer(&app.numbers));
    let seed = app.numbers.next();
    let asker = Asker::until(deadline);
    let (asked, body_room) = (asker.still_asked(), app.body_room.clone());
    let look = move |lease: Lease, body| {
        let read = Unsubmitted::read(protocol, id, lease, body, seed, deadline, record)?;
        match read.compiles() {
            true => Ok(Begun::Waits(read)),
            false => read.submit(&asked, &body_room).map(Begun::Runs),
        }
    };
    let fits = |offered: &Offered| match protocol.endpoint {
        Endpoint::Chat => offered.takes_chats().map_err(|refusal| {
            // What such a body has whatever is in it.
            refusal.renamed(&(protocol.names)(&Value::Null))
        }),
        Endpoint::Completions => Ok(()),
    };
    match intake::read(app, request, fits, look).await? {
        Begun::Runs(job) => Ok(job),
        Begun::Waits(read) => {
            let (asked, body_room) = (asker.still_asked(), app.body_room.clone());
            let submit = move || read.submit(&asked, &body_room);
            app.reading.run_long(submit).await?
        }
    }
}

/// How far a request came in the lane of its body.
enum Begun {
    Runs(Job),
    /// It is short, but what it asks may take long.
    Waits(Unsubmitted),
}

/// A request that was read and no engine has yet.
struct Unsubmitted {
    id: String,
    lease: Lease,
    asked: Asked,
    echoed: Echoed,
    deadline: Instant,
    record: RequestRecord,
    room: HeldRoom,
}

impl Unsubmitted {
    fn read(
        protocol: Protocol,
        id: String,
        lease: Lease,
        body: RequestBody,
        seed: u64,
        deadline: Instant,
        record: RequestRecord,
    ) -> Result<Self, ApiError> {
        let mut value = body.value()?;
        let room = body.into_room();
        let mut echoed = Echoed::default();
        if let Some(echoes) = protocol.echoes {
            echoed = echoes(&value)?;
        }
        let names = (protocol.names)(&value);
        if let Some(translate) = protocol.translate {
            value = translate(&value)?;
        }
        let loaded = lease.loaded();
        let asked = Asked::read(protocol.endpoint, &value, &loaded.serving(), seed);
        let mut asked = asked.map_err(|refusal| refusal.renamed(&names))?;
        asked.names = names;
        if asked.stream && asked.scores_prompt {
            let said = "is not served for a stream: ask for the answer whole";
            return Err(Refusal::of("prompt_logprobs", said).into());
        }
        if protocol.translate.is_some() && asked.params.n != 1 {
            return Err(Refusal::of("n", "must be 1: there is one answer to it").into());
        }
        Ok(Self {
            id,
            lease,
            asked,
            echoed,
            deadline,
            record,
            room,
        })
    }

    /// Whether the form of its answer is compiled, which may take long however short it is.
    fn compiles(&self) -> bool {
        self.asked.params.structured_output.is_some()
    }

    /// Hands its prompts to the engine, as long as it is asked for.
    fn submit(self, still_asked: &StillAsked, body_room: &BodyRoom) -> Result<Job, ApiError> {
        let Self {
            id,
            lease,
            mut asked,
            echoed,
            deadline,
            record,
            room,
        } = self;
        let texts = std::mem::take(&mut asked.prompts);
        let refusal = |error: &Error| asked.refusal(error);
        let refused = |error: &SubmitError| submit_error(error, refusal);
        let loaded = lease.loaded();
        let (handle, most) = (loaded.handle(), loaded.max_model_len());
        // Before any work is done for what cannot be taken.
        handle.check_room().map_err(|e| refused(&e))?;
        let room_for_answer = usize::from(asked.params.max_tokens > 0);
        let mut prompts = Vec::with_capacity(texts.len());
        for prompt in texts {
            still_asked.check()?;
            let tokenizer = handle.tokenizer();
            prompts.push(tokens_of(
                prompt,
                tokenizer,
                room_for_answer,
                most,
                refusal,
            )?);
        }
        let num_prompt_tokens: usize = prompts.iter().map(Vec::len).sum();
        let together = handle.together(Arc::clone(&asked.params));
        let mut together = together.map_err(|e| refused(&e))?;
        let kept = echoed.num_bytes()
            + asked.num_bytes()
            + num_prompt_tokens * size_of::<TokenId>()
            + together.num_bytes(prompts.len(), num_prompt_tokens);
        let room = body_room.exchange(room, kept)?;
        let mut streams = Vec::with_capacity(prompts.len());
        for ids in &prompts {
            still_asked.check()?;
            let stream = together.submit(Prompt::TokenIds(ids.clone()));
            streams.push(stream.map_err(|e| refused(&e))?);
        }
        let of = AskedOf {
            answer_id: id.clone(),
            num_prompt_tokens,
            is_streamed: asked.stream,
            sampling: Some((&*asked.params).into()),
        };
        record.asked(of, prompts.len());
        Ok(Job {
            id,
            created: now(),
            lease,
            asked,
            echoed,
            prompts,
            streams,
            deadline,
            record,
            room,
        })
    }
}

/// The tokens of a prompt, which leave room for so many more.
fn tokens_of(
    prompt: Prompt,
    tokenizer: &Tokenizer,
    room: usize,
    max_model_len: usize,
    refusal: impl Fn(&Error) -> Option<Refusal>,
) -> Result<Vec<TokenId>, ApiError> {
    let refused = |error: Error| match refusal(&error) {
        Some(refusal) => refusal.into(),
        None => ApiError::internal(error.to_string()),
    };
    let ids = prompt.into_token_ids(tokenizer);
    let ids = ids.map_err(|error| refused(error.into()))?;
    // The engine says the same, but only once it looks, when a stream would have begun.
    if ids.is_empty() {
        return Err(refused(RequestError::EmptyPrompt.into()));
    }
    if ids.len() + room > max_model_len {
        let error = RequestError::PromptTooLong {
            num_prompt_tokens: ids.len(),
            room,
            max_model_len,
        };
        return Err(refused(error.into()).code("context_length_exceeded"));
    }
    Ok(ids)
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
