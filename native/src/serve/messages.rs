//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's protocol, errors included, whoever met them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum::response::sse::Event;
use serde_json::Value;
use twoclock_core::chat::AnswerParts;
use twoclock_core::engine::{Prompt, RequestOutput};
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;

use super::api_error::ApiError;
use super::app::App;
use super::intake::{self, within};
use super::job::{Job, Protocol, begin};
use super::lease::Lease;
use super::loaded::Loaded;
use super::offered::Offered;
use super::one_answer::OneAnswer;
use super::request_body::RequestBody;
use super::request_id::RequestId;
use super::stream::{self, Tell, named};
use super::whole::{self, Gathered};
use super::whole_body::WholeBody;
use crate::anthropic::{
    Ended, MessageStream, as_chat, count_body, error_body, message_body, names,
};
use crate::openai::fields::Fields;
use crate::openai::refusal::Refusal;
use crate::openai::{Endpoint, messages};

const PATH: &str = "/v1/messages";
/// What stands below it, whether it is served or not.
const BELOW: &str = "/v1/messages/";

const PROTOCOL: Protocol = Protocol {
    endpoint: Endpoint::Chat,
    prefix: "msg_",
    translate: Some(|body| as_chat(body, false)),
    echoes: None,
    names,
};

/// `/v1/messages`.
pub async fn message(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    within(&app, async |deadline| {
        let job = begin(&app, PROTOCOL, &id, request, deadline).await?;
        match job.asked.stream {
            true => {
                let teller = |job: &mut Job| Teller::new(job, id.clone());
                Ok(stream::answer(job, teller, app.settings.ping_interval))
            }
            false => {
                let (whole, hold) = whole::gather(job, &app.answer_room).await?;
                let write = move |hold| WholeBody::json(&body(&whole), hold);
                whole::told(&app.reading, hold, write).await
            }
        }
    })
    .await
}

/// `/v1/messages/count_tokens`.
pub async fn count(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    within(&app, async |_| {
        let count = |lease: Lease, body: RequestBody| -> Result<usize, ApiError> {
            let body = body.value()?;
            let counted = num_tokens(&body, lease.loaded());
            Ok(counted.map_err(|refusal| refusal.renamed(&names(&body)))?)
        };
        let counted = intake::read(&app, request, Offered::takes_chats, count).await?;
        Ok(whole::json(&count_body(counted)))
    })
    .await
}

fn num_tokens(body: &Value, loaded: &Loaded) -> Result<usize, Refusal> {
    let chat = as_chat(body, true)?;
    let chat = messages::read(&Fields::of(&chat)?, &loaded.serving())?;
    let prompt = Prompt::Templated(chat.prompt);
    loaded.serving().hold("messages", &prompt, false)?;
    let ids = prompt.into_token_ids(loaded.handle().tokenizer());
    let ids = ids.map_err(|e| Refusal::sentence("messages", e))?;
    Ok(ids.len())
}

/// Has every error on this protocol's paths in its shape, also what keys, methods and faults answer. Its clients
/// look for the request's name under another header too.
pub async fn shape(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path != PATH && !path.starts_with(BELOW) {
        return next.run(request).await;
    }
    let id = request.extensions().get::<RequestId>().cloned();
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>() {
        let id = id.as_ref().map(RequestId::as_str);
        let body = error_body(error.status.as_u16(), &error.message, id);
        *response.body_mut() = body.to_string().into();
    }
    if let Some(id) = id {
        response.headers_mut().insert("request-id", id.header());
    }
    response
}

fn body(whole: &Gathered) -> Value {
    let format = &whole.asked.format;
    let choice = whole.choices.first();
    let text = choice.map_or("", |choice| choice.text.as_str());
    let ended = Ended {
        reason: choice.and_then(|choice| choice.completion.finish_reason),
        stop: choice.and_then(|choice| choice.completion.stop_reason.clone()),
        usage: whole.usage,
    };
    let parts = AnswerParts::of(format, text);
    message_body(&whole.id, whole.lease.name(), &parts, format, &ended)
}

/// Tells a message in its events.
struct Teller {
    stream: MessageStream,
    answer: OneAnswer,
    has_begun: bool,
    request: RequestId,
}

impl Teller {
    fn new(job: &mut Job, request: RequestId) -> Self {
        let format = std::mem::take(&mut job.asked.format);
        let num_prompt_tokens = job.prompts.iter().map(Vec::len).sum();
        Self {
            stream: MessageStream::new(&job.id, job.lease.name(), format.clone()),
            answer: OneAnswer::new(format, num_prompt_tokens),
            has_begun: false,
            request,
        }
    }
}

impl Tell for Teller {
    fn gained(
        &mut self,
        _: usize,
        gained: RequestOutput,
        _: &Tokenizer,
    ) -> Result<Vec<Event>, RequestError> {
        let gained = self.answer.take(gained)?;
        let mut events = Vec::new();
        // Only now it is known what of the prompt was computed before.
        if !std::mem::replace(&mut self.has_begun, true) {
            events.extend(self.stream.begin(self.answer.usage));
        }
        events.extend(self.stream.extend(gained));
        Ok(named(events))
    }

    fn end(&mut self, _: &Tokenizer) -> Vec<Event> {
        let ended = Ended {
            reason: self.answer.reason,
            stop: self.answer.stop.clone(),
            usage: self.answer.usage,
        };
        named(self.stream.end(&ended))
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let status = error.status.as_u16();
        let body = error_body(status, &error.message, Some(self.request.as_str()));
        named(vec![body])
    }
}
