//! Answers that come piece by piece, as server-sent events, with comments while there is nothing to say. What
//! the events are is a teller's, whose panics end its stream alone. Dropped, as when the client goes, a stream gives
//! up what is left.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use thiserror::Error;
use tokio::time::{Sleep, sleep_until};
use twoclock_core::engine::RequestOutput;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;

use super::answers::Answers;
use super::api_error::{ApiError, stream_error};
use super::body_room::HeldRoom;
use super::generate::{Job, answer_error};
use super::lease::Lease;
use super::request_record::RequestRecord;
use crate::openai::Asked;

/// Tells an answer in a protocol's events, in their order.
pub trait Tell: Send {
    /// What is said before there is an answer.
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// What the answers to the prompt at this place gained.
    ///
    /// # Errors
    /// The answer failed by itself.
    fn gained(
        &mut self,
        prompt: usize,
        gained: RequestOutput,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<Event>, RequestError>;

    /// All is answered.
    fn end(&mut self, tokenizer: &Tokenizer) -> Vec<Event>;

    /// It ends for this reason.
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;
}

/// Begins to answer; `teller` is made for the job.
pub fn answer<T: Tell + Unpin + 'static>(
    job: Job,
    teller: impl FnOnce(&mut Job) -> T,
    ping_interval: Duration,
) -> Response {
    let keep_alive = KeepAlive::new().interval(ping_interval).text("ping");
    let events = Sse::new(Events::new(job, teller)).keep_alive(keep_alive);
    // Proxies that gather answers would keep the pieces back.
    ([("x-accel-buffering", "no")], events).into_response()
}

/// Nothing more can be told.
#[derive(Debug, Error)]
#[error("telling this answer met a fault of the server")]
struct Fault;

/// The events of an answer.
struct Events<T> {
    lease: Lease,
    asked: Asked,
    teller: T,
    /// None when there is nothing more to come.
    answers: Option<Answers>,
    deadline: Pin<Box<Sleep>>,
    ready: VecDeque<Event>,
    record: RequestRecord,
    /// Given back when it ends.
    _room: HeldRoom,
}

impl<T: Tell> Events<T> {
    fn new(mut job: Job, teller: impl FnOnce(&mut Job) -> T) -> Self {
        let (n, format) = (job.asked.params.n, job.asked.format.clone());
        let mut teller = teller(&mut job);
        Self {
            ready: teller.begin().into(),
            lease: job.lease,
            asked: job.asked,
            teller,
            answers: Some(Answers::of_format(job.streams, n, &format)),
            deadline: Box::pin(sleep_until(job.deadline)),
            record: job.record,
            _room: job.room,
        }
    }

    /// Ends the stream, for this reason if there is one.
    fn end(&mut self, error: Option<&ApiError>) {
        self.answers = None;
        self.record.ended(error);
        let tokenizer = self.lease.loaded().handle().tokenizer();
        self.ready.extend(match error {
            Some(error) => self.teller.fail(error),
            None => self.teller.end(tokenizer),
        });
    }

    fn take(
        &mut self,
        place: usize,
        piece: Result<RequestOutput, StreamError>,
    ) -> Result<(), ApiError> {
        let piece = piece.map_err(|e| stream_error(&e, |error| self.asked.refusal(error)))?;
        self.record.gained(place, &piece.output);
        let tokenizer = self.lease.loaded().handle().tokenizer();
        let told = self.teller.gained(place, piece, tokenizer);
        self.ready
            .extend(told.map_err(|error| answer_error(&error))?);
        Ok(())
    }

    /// The next event.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            let Some(answers) = &mut self.answers else {
                return Poll::Ready(None);
            };
            let polled = Pin::new(answers).poll_next(cx);
            match polled {
                Poll::Ready(Some((place, piece))) => {
                    if let Err(error) = self.take(place, piece) {
                        self.end(Some(&error));
                    }
                }
                Poll::Ready(None) => self.end(None),
                Poll::Pending => {
                    ready!(self.deadline.as_mut().poll(cx));
                    self.end(Some(&ApiError::timed_out()));
                }
            }
        }
    }
}

impl<T: Tell + Unpin> Stream for Events<T> {
    type Item = Result<Event, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // After a panic the teller is asked once more at most, for its last word.
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_event(cx))).or_else(|_| {
            self.answers = None;
            catch_unwind(AssertUnwindSafe(|| {
                self.end(Some(&ApiError::fault()));
                self.poll_event(cx)
            }))
        });
        match polled {
            Ok(event) => event.map(|event| event.map(Ok)),
            // The body is cut, so that nobody takes it for whole.
            Err(_) => Poll::Ready(Some(Err(Fault))),
        }
    }
}
