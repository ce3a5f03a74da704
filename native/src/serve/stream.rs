//! Answers that come piece by piece, as server-sent events: OpenAI's chunks, comments while there is nothing
//! to say, and `[DONE]`. Dropped, as when the client goes, they give up what is left.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::Value;
use tokio::time::{Sleep, sleep_until};
use twoclock_core::engine::RequestOutput;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::types::FinishReason;

use super::answers::Answers;
use super::api_error::{ApiError, stream_error};
use super::generate::{Job, answer_error};
use super::models::Lease;
use crate::openai::Asked;
use crate::openai::chunk::{Chunks, Echo};

/// Begins to answer.
pub fn answer(job: Job, ping_interval: Duration) -> Response {
    let keep_alive = KeepAlive::new().interval(ping_interval).text("ping");
    let events = Sse::new(Events::new(job)).keep_alive(keep_alive);
    // Proxies that gather answers would keep the pieces back.
    ([("x-accel-buffering", "no")], events).into_response()
}

/// The events of an answer.
struct Events {
    lease: Lease,
    asked: Asked,
    /// Tokens of each prompt.
    num_prompt_tokens: Vec<usize>,
    chunks: Chunks,
    /// None when there is nothing more to come.
    answers: Option<Answers>,
    deadline: Pin<Box<Sleep>>,
    ready: VecDeque<Event>,
}

impl Events {
    fn new(job: Job) -> Self {
        let Job {
            id,
            created,
            lease,
            mut asked,
            prompts,
            streams,
            deadline,
        } = job;
        let model = lease.name().to_owned();
        let mut chunks = Chunks::new(asked.endpoint, id, created, model, asked.params.n);
        chunks.include_usage = asked.include_usage;
        let num_prompt_tokens = prompts.iter().map(Vec::len).collect();
        let is_scored = asked.params.logprobs.is_some();
        let echoes = std::mem::take(&mut asked.echoes).into_iter().zip(prompts);
        chunks.echoes = echoes
            .map(|(text, ids)| Echo::new(text, ids, is_scored))
            .collect();
        Self {
            lease,
            asked,
            num_prompt_tokens,
            chunks,
            answers: Some(Answers::new(streams)),
            deadline: Box::pin(sleep_until(deadline)),
            ready: VecDeque::new(),
        }
    }

    fn say(&mut self, value: &Value) {
        self.ready
            .push_back(Event::default().data(value.to_string()));
    }

    /// Ends the stream, for this reason if there is one.
    fn end(&mut self, error: Option<ApiError>) {
        self.answers = None;
        match error {
            Some(error) => self.say(&error.body()),
            None if self.asked.include_usage => {
                let usage = self.chunks.usage();
                self.say(&usage);
            }
            None => {}
        }
        self.ready.push_back(Event::default().data("[DONE]"));
    }

    fn take(
        &mut self,
        place: usize,
        piece: Result<RequestOutput, StreamError>,
    ) -> Result<(), ApiError> {
        let piece = piece.map_err(|e| stream_error(&e, |error| self.asked.refusal(error)))?;
        if piece.output.finished == Some(Ok(FinishReason::Abort)) {
            return Err(ApiError::shutting_down());
        }
        let num_prompt_tokens = self.num_prompt_tokens[place];
        let tokenizer = self.lease.loaded().handle().tokenizer();
        let pieces = self
            .chunks
            .pieces(place, num_prompt_tokens, piece, tokenizer);
        for piece in pieces.map_err(|error| answer_error(&error))? {
            self.say(&piece);
        }
        Ok(())
    }
}

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(answers) = &mut self.answers else {
                return Poll::Ready(None);
            };
            let polled = Pin::new(answers).poll_next(cx);
            match polled {
                Poll::Ready(Some((place, piece))) => {
                    if let Err(error) = self.take(place, piece) {
                        self.end(Some(error));
                    }
                }
                Poll::Ready(None) => self.end(None),
                Poll::Pending => {
                    ready!(self.deadline.as_mut().poll(cx));
                    self.end(Some(ApiError::timed_out()));
                }
            }
        }
    }
}
