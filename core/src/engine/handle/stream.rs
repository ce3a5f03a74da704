//! The answers to one request as they come: an outbox that the driver fills and a stream that empties
//! it. What was not read yet is one piece an answer, however many steps brought it. Knows no engine.

use super::mailbox::Mailbox;
use crate::engine::output::EngineOutput;
use crate::engine::output_processor::RequestOutput;
use crate::error::Error;
use crate::types::{FinishReason, RequestId};
use futures_core::Stream;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use thiserror::Error;

/// Why a stream ended before its request did. That one of several answers failed is said in its
/// output instead.
#[derive(Clone, Debug, Error)]
pub enum StreamError {
    /// The engine does not take this request.
    #[error(transparent)]
    Refused(Arc<Error>),
    /// A step that this request took part in failed, and would again.
    #[error("the step of this request failed: {0}")]
    StepFailed(Arc<Error>),
    /// The device was lost and no other was to be had.
    #[error(transparent)]
    DeviceLost(Arc<Error>),
    /// The engine has a fault.
    #[error("the engine stopped at a fault of its own: {0}")]
    Panicked(String),
    /// Whoever drove the engine gave it up.
    #[error("the engine is gone")]
    Gone,
}

#[derive(Debug)]
struct State {
    /// What was not read yet, by answer.
    unread: BTreeMap<usize, RequestOutput>,
    num_unread_tokens: usize,
    /// Answers that are not over.
    open: usize,
    error: Option<StreamError>,
    reader: Option<Waker>,
    /// The driver was told that there is no room, and has yet to hear that there is again: only the
    /// reader takes it back, for the request stands still until it says so.
    full: bool,
}

/// What was brought to one request.
#[derive(Debug)]
pub(super) struct Outbox {
    max_unread_tokens: usize,
    state: Mutex<State>,
}

impl Outbox {
    pub(super) fn new(answers: usize, max_unread_tokens: usize) -> Self {
        Self {
            max_unread_tokens: max_unread_tokens.max(1),
            state: Mutex::new(State {
                unread: BTreeMap::new(),
                num_unread_tokens: 0,
                open: answers,
                error: None,
                reader: None,
                full: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what a step brought. Says whether so much lies here that no more should come; the reader
    /// then tells the mailbox when it has read.
    pub(super) fn push(&self, output: RequestOutput) -> bool {
        let mut state = self.lock();
        state.num_unread_tokens += output.output.token_ids.len();
        state.open -= usize::from(output.output.finished.is_some());
        match state.unread.get_mut(&output.output.index) {
            Some(unread) => join(unread, output),
            None => {
                state.unread.insert(output.output.index, output);
            }
        }
        let no_room = state.num_unread_tokens >= self.max_unread_tokens;
        state.full = state.open > 0 && (state.full || no_room);
        let (full, reader) = (state.full, state.reader.take());
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        full
    }

    /// Ends the stream behind what was brought.
    pub(super) fn fail(&self, error: StreamError) {
        let mut state = self.lock();
        if state.open > 0 {
            state.open = 0;
            state.error = Some(error);
        }
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether all was brought.
    pub(super) fn is_over(&self) -> bool {
        self.lock().open == 0
    }
}

/// Puts a later output of the same answer behind an earlier one.
fn join(unread: &mut RequestOutput, later: RequestOutput) {
    let RequestOutput { output, text } = later;
    // Field by field, so that none is forgotten.
    let EngineOutput {
        request_id: _,
        index: _,
        token_ids,
        logprobs,
        prompt_logprobs,
        embedding,
        num_cached_tokens,
        finished,
        stop_reason,
        metrics,
    } = output;
    unread.text.push_str(&text);
    let unread = &mut unread.output;
    unread.token_ids.extend(token_ids);
    unread.logprobs.extend(logprobs);
    unread.prompt_logprobs.extend(prompt_logprobs);
    unread.embedding = embedding;
    unread.num_cached_tokens = num_cached_tokens;
    unread.finished = finished;
    unread.stop_reason = stop_reason;
    unread.metrics = metrics;
}

/// The answers to one request, piece by piece; a piece is what one answer gained since it was last
/// read. The stream ends when all answers have, or with an error. Dropping it aborts the request.
///
/// Whoever does not read stops this request alone: past
/// [`max_unread_tokens`](super::HandleOptions::max_unread_tokens) it is computed no further until
/// it is read.
#[derive(Debug)]
pub struct RequestStream {
    id: RequestId,
    outbox: Arc<Outbox>,
    mailbox: Arc<Mailbox>,
}

impl RequestStream {
    pub(super) fn new(id: RequestId, outbox: Arc<Outbox>, mailbox: Arc<Mailbox>) -> Self {
        Self {
            id,
            outbox,
            mailbox,
        }
    }

    /// Its request: what [`EngineHandle::abort`](super::EngineHandle::abort) takes, and what its
    /// outputs name.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Ends its request where it is, as if the model had ended it: what is not drawn yet is not wanted.
    pub fn stop(self) {
        if !self.outbox.is_over() {
            self.mailbox.end_request(self.id, FinishReason::Stop);
        }
    }

    /// The next piece; `None` when there is no more.
    pub async fn next(&mut self) -> Option<Result<RequestOutput, StreamError>> {
        std::future::poll_fn(|cx| self.poll_piece(cx)).await
    }

    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<Option<Result<RequestOutput, StreamError>>> {
        let mut state = self.outbox.lock();
        if let Some((_, output)) = state.unread.pop_first() {
            state.num_unread_tokens -= output.output.token_ids.len();
            let has_room = state.num_unread_tokens == 0;
            let was_full = has_room && std::mem::take(&mut state.full);
            drop(state);
            if was_full {
                self.mailbox.was_read(self.id);
            }
            return Poll::Ready(Some(Ok(output)));
        }
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if state.open == 0 {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for RequestStream {
    type Item = Result<RequestOutput, StreamError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_piece(cx)
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        if !self.outbox.is_over() {
            self.mailbox.end_request(self.id, FinishReason::Abort);
        }
    }
}
