//! `/v1/responses`: OpenAI's newer protocol, without a memory of responses.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::response::sse::Event;
use serde_json::{Value, json};
use twoclock_core::chat::AnswerSplitter;
use twoclock_core::engine::RequestOutput;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;

use super::api_error::ApiError;
use super::app::App;
use super::intake::within;
use super::job::{Job, Protocol, begin};
use super::one_answer::OneAnswer;
use super::request_id::RequestId;
use super::stream::{self, Tell, named};
use super::whole::{self, Gathered};
use super::whole_body::WholeBody;
use crate::openai::responses::{as_chat, names};
use crate::openai::responses_stream::ResponseStream;
use crate::openai::{Echoed, Endpoint};

const PROTOCOL: Protocol = Protocol {
    endpoint: Endpoint::Chat,
    prefix: "resp_",
    translate: Some(as_chat),
    echoes: Some(Echoed::of),
    names,
};

/// `/v1/responses`.
pub async fn respond(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    within(&app, async |deadline| {
        let job = begin(&app, PROTOCOL, &id, request, deadline).await?;
        match job.asked.stream {
            true => Ok(stream::answer(job, Teller::new, app.settings.ping_interval)),
            false => {
                let (whole, hold) = whole::gather(job, &app.answer_room).await?;
                let write = move |hold| WholeBody::json(&response(whole), hold);
                whole::told(&app.reading, hold, write).await
            }
        }
    })
    .await
}

fn response(whole: Gathered) -> Value {
    let format = whole.asked.format;
    let model = whole.lease.name();
    let mut told = ResponseStream::new(
        &whole.id,
        whole.created,
        model,
        &whole.asked.params,
        whole.echoed,
        format.clone(),
    );
    let mut splitter = AnswerSplitter::new(format);
    let mut reason = None;
    if let Some(choice) = whole.choices.first() {
        told.extend(splitter.push(&choice.text));
        told.extend(splitter.finish());
        reason = choice.completion.finish_reason;
    }
    let tokenizer = whole.lease.loaded().handle().tokenizer();
    told.end(reason, whole.usage, tokenizer);
    told.response()
}

/// Tells a response in its events.
struct Teller {
    stream: ResponseStream,
    answer: OneAnswer,
}

impl Teller {
    fn new(job: &mut Job) -> Self {
        let format = std::mem::take(&mut job.asked.format);
        let echoed = std::mem::take(&mut job.echoed);
        let num_prompt_tokens = job.prompts.iter().map(Vec::len).sum();
        let (id, model, drawn) = (&job.id, job.lease.name(), &job.asked.params);
        Self {
            stream: ResponseStream::new(id, job.created, model, drawn, echoed, format.clone()),
            answer: OneAnswer::new(format, num_prompt_tokens),
        }
    }
}

impl Tell for Teller {
    fn begin(&mut self) -> Vec<Event> {
        named(self.stream.begin())
    }

    fn gained(
        &mut self,
        _: usize,
        gained: RequestOutput,
        _: &Tokenizer,
    ) -> Result<Vec<Event>, RequestError> {
        let events = self.answer.take(gained)?;
        Ok(named(self.stream.extend(events)))
    }

    fn end(&mut self, tokenizer: &Tokenizer) -> Vec<Event> {
        let OneAnswer { reason, usage, .. } = self.answer;
        named(self.stream.end(reason, usage, tokenizer))
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let code = json!(error.code.unwrap_or("server_error"));
        let code = code.as_str().unwrap_or_default();
        named(self.stream.fail(code, &error.message))
    }
}
