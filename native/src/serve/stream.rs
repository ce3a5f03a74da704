//! Answers that come piece by piece, as server-sent events, with comments while there is nothing to say. What
//! the events are is a teller's, whose panics end its stream alone. Dropped, as when the client goes, a stream gives
//! up what is left.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::Value;
use thiserror::Error;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;
use twoclock_core::engine::RequestOutput;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;

use super::answers::Answers;
use super::api_error::{ApiError, stream_error};
use super::body_room::HeldRoom;
use super::job::{Job, answer_error};
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
pub fn answer<T: Tell + 'static>(
    job: Job,
    teller: impl FnOnce(&mut Job) -> T,
    ping_interval: Duration,
) -> Response {
    let keep_alive = KeepAlive::new().interval(ping_interval).text("ping");
    let events = Sse::new(Events::new(job, teller)).keep_alive(keep_alive);
    // Proxies that gather answers would keep the pieces back.
    ([("x-accel-buffering", "no")], events).into_response()
}

/// Events under the names of their types.
pub fn named(events: Vec<Value>) -> Vec<Event> {
    let event = |value: Value| {
        let kind = value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("message");
        Event::default().event(kind).data(value.to_string())
    };
    events.into_iter().map(event).collect()
}

/// Nothing more can be told.
#[derive(Debug, Error)]
#[error("telling this answer met a fault of the server")]
struct Fault;

/// An answer as far as it is told. It is given up at its time also where nobody reads it and it is therefore not asked
/// for events.
struct Events<T> {
    telling: Arc<Mutex<Telling<T>>>,
    keeper: AbortHandle,
}

/// What is told, and who tells it.
struct Telling<T> {
    teller: T,
    /// None when there is nothing more to come.
    under_way: Option<UnderWay>,
    /// Why it ended, until that is told.
    failed: Option<ApiError>,
    ready: VecDeque<Event>,
    record: RequestRecord,
    /// Waits for an event.
    reader: Option<Waker>,
}

/// What an answer takes until it ends.
struct UnderWay {
    answers: Answers,
    asked: Asked,
    lease: Lease,
    _room: HeldRoom,
}

impl UnderWay {
    fn tokenizer(&self) -> &Tokenizer {
        self.lease.loaded().handle().tokenizer()
    }
}

impl<T: Tell + 'static> Events<T> {
    fn new(mut job: Job, teller: impl FnOnce(&mut Job) -> T) -> Self {
        let (n, format) = (job.asked.params.n, job.asked.format.clone());
        let mut teller = teller(&mut job);
        let telling = Arc::new(Mutex::new(Telling {
            ready: teller.begin().into(),
            teller,
            under_way: Some(UnderWay {
                answers: Answers::of_format(job.streams, n, &format),
                asked: job.asked,
                lease: job.lease,
                _room: job.room,
            }),
            failed: None,
            record: job.record,
            reader: None,
        }));
        let kept = Arc::downgrade(&telling);
        let keeper = tokio::spawn(async move {
            sleep_until(job.deadline).await;
            if let Some(telling) = kept.upgrade() {
                lock(&telling).expire();
            }
        });
        Self {
            telling,
            keeper: keeper.abort_handle(),
        }
    }
}

fn lock<T>(telling: &Mutex<Telling<T>>) -> MutexGuard<'_, Telling<T>> {
    telling.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Tell> Telling<T> {
    /// All is answered.
    fn end(&mut self) {
        self.record.ended(None);
        if let Some(under_way) = self.under_way.take() {
            self.ready.extend(self.teller.end(under_way.tokenizer()));
        }
    }

    /// Ends it for this reason, which is told where events are asked for: there a teller may panic.
    fn fail(&mut self, error: ApiError) {
        self.under_way = None;
        self.record.ended(Some(&error));
        self.failed = Some(error);
    }

    /// Its time is over.
    fn expire(&mut self) {
        if self.under_way.is_none() {
            return;
        }
        self.fail(ApiError::timed_out());
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// What an answer gained is told.
    fn take(
        &mut self,
        place: usize,
        piece: Result<RequestOutput, StreamError>,
    ) -> Result<(), ApiError> {
        let Some(under_way) = &self.under_way else {
            return Ok(());
        };
        let asked = &under_way.asked;
        let piece = piece.map_err(|e| stream_error(&e, |error| asked.refusal(error)))?;
        self.record.gained(place, &piece.output);
        let told = self.teller.gained(place, piece, under_way.tokenizer());
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
            if let Some(error) = self.failed.take() {
                self.ready.extend(self.teller.fail(&error));
                continue;
            }
            let Some(under_way) = &mut self.under_way else {
                return Poll::Ready(None);
            };
            match Pin::new(&mut under_way.answers).poll_next(cx) {
                Poll::Ready(Some((place, piece))) => {
                    if let Err(error) = self.take(place, piece) {
                        self.fail(error);
                    }
                }
                Poll::Ready(None) => self.end(),
                Poll::Pending => {
                    self.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<T: Tell> Stream for Events<T> {
    type Item = Result<Event, Fault>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let telling = &mut *lock(&self.telling);
        // After a panic the teller is asked for its last word, and after one in that for nothing more.
        let polled = catch_unwind(AssertUnwindSafe(|| telling.poll_event(cx))).or_else(|_| {
            catch_unwind(AssertUnwindSafe(|| {
                telling.fail(ApiError::fault());
                telling.poll_event(cx)
            }))
        });
        match polled {
            Ok(event) => event.map(|event| event.map(Ok)),
            // The body is cut, so that nobody takes it for whole.
            Err(_) => Poll::Ready(Some(Err(Fault))),
        }
    }
}

impl<T> Drop for Events<T> {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
