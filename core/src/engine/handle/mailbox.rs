//! What handles and streams tell the driver, and what it tells all of them: a bounded queue and a few
//! words under one lock, with wakers. Knows no engine.

use super::counts::{AskCounts, Counts};
use super::last_steps::LastSteps;
use super::queue::Queue;
use super::stream::{Outbox, RequestStream, StreamError};
use super::submission::{Submission, Wish};
use super::{HandleOptions, SubmitError};
use crate::engine::metrics::MetricFamily;
use crate::engine::step_costs::StepCosts;
use crate::sched::Ahead;
use crate::types::{FinishReason, RequestId, TokenId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Whether an engine can compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It can.
    #[default]
    Ready,
    /// Its device was lost and is being replaced; requests wait meanwhile.
    Recovering,
    /// It could not go on. All streams have ended and no request is taken.
    Failed,
    /// It was shut down.
    Stopped,
}

/// What an engine has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that are not over.
    pub num_requests: usize,
    /// Of them those that are set aside until somebody reads them.
    pub num_unread: usize,
    /// Sequences that hold blocks of the KV cache and take part in steps.
    pub num_running: usize,
    /// Sequences that wait for it, for the first time or again; each of a request's answers is one.
    pub num_waiting: usize,
    /// Blocks of the KV cache that somebody holds, of a thousand.
    pub kv_usage_permille: u32,
    /// Times its device was replaced.
    pub num_recoveries: usize,
}

/// How an engine is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// When all is answered.
    Drain,
    /// At once.
    Stop,
}

/// What the driver finds.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) submissions: VecDeque<Submission>,
    /// Requests that are to end at once, and as what.
    pub(super) ends: BTreeMap<RequestId, FinishReason>,
    /// Streams that were full and were read.
    pub(super) reads: BTreeSet<RequestId>,
    /// Somebody asked what the engine counts.
    pub(super) wants_metrics: bool,
    pub(super) ending: Option<Ending>,
}

#[derive(Debug, Default)]
struct State {
    inbox: Inbox,
    /// The ending that was taken already.
    taken: Option<Ending>,
    next_id: u64,
    queue: Queue,
    load: Load,
    health: Health,
    /// Nobody drives any more; why, unless it was asked for.
    closed: Option<Result<(), StreamError>>,
    driver: Option<Waker>,
    closing: Vec<Waker>,
    steps: LastSteps,
    counts: Counts,
    /// When the step that runs began, by the engine's clock.
    step_began: Option<Duration>,
}

impl State {
    fn load(&self) -> Load {
        // The engine was not told of those that came since it last looked.
        let new = self.inbox.submissions.iter();
        let num_new: usize = new.map(|new| new.wish.num_answers()).sum();
        Load {
            num_waiting: self.load.num_waiting + num_new,
            num_requests: self.queue.num_requests(),
            num_unread: self.queue.num_unread(),
            ..self.load
        }
    }
}

#[derive(Debug)]
pub(super) struct Mailbox {
    options: HandleOptions,
    max_num_seqs: usize,
    state: Mutex<State>,
}

impl Mailbox {
    pub(super) fn new(options: HandleOptions, max_num_seqs: usize) -> Self {
        Self {
            options,
            max_num_seqs,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the driver.
    fn tell<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let waker = state.driver.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Whether another may come; who has a place does not wait for one.
    fn room(&self, state: &State, has_place: bool) -> Result<(), SubmitError> {
        match &state.closed {
            Some(Err(error)) => return Err(error.clone().into()),
            Some(Ok(())) => return Err(SubmitError::ShuttingDown),
            None if state.inbox.ending.is_some() => return Err(SubmitError::ShuttingDown),
            None => {}
        }
        let awaited = state.queue.num_places();
        let waiting = awaited.saturating_sub(self.max_num_seqs);
        let free_seat = awaited < self.max_num_seqs;
        if !has_place && !free_seat && waiting >= self.options.max_waiting {
            return Err(SubmitError::QueueFull {
                waiting,
                max_waiting: self.options.max_waiting,
            });
        }
        Ok(())
    }

    /// Whether another may come that has no place yet.
    pub(super) fn check_room(&self) -> Result<(), SubmitError> {
        self.room(&self.lock(), false)
    }

    /// Takes a request in, at the place of an earlier one if there is one that it came with.
    pub(super) fn submit(
        self: &Arc<Self>,
        prompt_token_ids: Vec<TokenId>,
        wish: Wish,
        place: Option<RequestId>,
        ahead: Ahead,
        arrival: Duration,
    ) -> Result<RequestStream, SubmitError> {
        self.tell(|state| {
            self.room(state, place.is_some())?;
            let id = RequestId(state.next_id);
            let place = place.unwrap_or(id);
            state.next_id += 1;
            state.queue.enter(place);
            let answers = wish.num_answers();
            let outbox = Arc::new(Outbox::new(answers, self.options.max_unread_tokens));
            state.inbox.submissions.push_back(Submission {
                id,
                place,
                ahead,
                arrival,
                prompt_token_ids,
                wish,
                outbox: Arc::clone(&outbox),
            });
            Ok(RequestStream::new(id, outbox, Arc::clone(self)))
        })
    }

    /// A request is to end at once; the first reason stays.
    pub(super) fn end_request(&self, id: RequestId, reason: FinishReason) {
        self.tell(|state| {
            if id.0 < state.next_id && state.closed.is_none() {
                state.inbox.ends.entry(id).or_insert(reason);
            }
        });
    }

    /// A stream that was full has room again.
    pub(super) fn was_read(&self, id: RequestId) {
        self.tell(|state| state.inbox.reads.insert(id));
    }

    pub(super) fn end(&self, ending: Ending) {
        self.tell(|state| state.inbox.ending = state.inbox.ending.max(Some(ending)));
    }

    pub(super) fn health(&self) -> Health {
        self.lock().health
    }

    pub(super) fn load(&self) -> Load {
        self.lock().load()
    }

    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let mut state = self.lock();
        match &state.closed {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                if !state.closing.iter().any(|w| w.will_wake(cx.waker())) {
                    state.closing.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Everything told since the last call. An ending stays.
    pub(super) fn take(&self) -> Inbox {
        let mut state = self.lock();
        let ending = state.inbox.ending;
        state.taken = ending;
        let next = Inbox {
            ending,
            ..Inbox::default()
        };
        std::mem::replace(&mut state.inbox, next)
    }

    /// Ready when there is something to take.
    pub(super) fn poll_mail(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        let Inbox {
            submissions,
            ends,
            reads,
            wants_metrics,
            ending,
        } = &state.inbox;
        let none = submissions.is_empty() && ends.is_empty() && reads.is_empty();
        if none && !wants_metrics && *ending == state.taken {
            state.driver = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// A request is over.
    pub(super) fn forget(&self, place: RequestId, is_unread: bool) {
        self.lock().queue.leave(place, is_unread);
    }

    /// A request is set aside.
    pub(super) fn set_aside(&self, place: RequestId) {
        self.lock().queue.set_aside(place);
    }

    /// A request that was set aside goes on.
    pub(super) fn take_up(&self, place: RequestId) {
        self.lock().queue.take_up(place);
    }

    pub(super) fn set_load(&self, num_running: usize, num_waiting: usize, kv_usage_permille: u32) {
        let mut state = self.lock();
        state.load.num_running = num_running;
        state.load.num_waiting = num_waiting;
        state.load.kv_usage_permille = kv_usage_permille;
    }

    pub(super) fn steps(&self) -> LastSteps {
        self.lock().steps.clone()
    }

    /// Takes over what was recorded since the last call.
    pub(super) fn set_steps(&self, costs: &StepCosts) {
        self.lock().steps.follow(costs);
    }

    pub(super) fn set_health(&self, health: Health) {
        let mut state = self.lock();
        if (state.health, health) == (Health::Recovering, Health::Ready) {
            state.load.num_recoveries += 1;
        }
        state.health = health;
        let waiting = state.counts.take_waiting();
        drop(state);
        waiting.for_each(Waker::wake);
    }

    /// A step begins, or has ended.
    pub(super) fn set_step_began(&self, began: Option<Duration>) {
        self.lock().step_began = began;
    }

    pub(super) fn step_began(&self) -> Option<Duration> {
        self.lock().step_began
    }

    /// Asks what the engine counts.
    pub(super) fn ask_counts(&self) -> AskCounts<'_> {
        let number = self.tell(|state| {
            state.inbox.wants_metrics = true;
            state.counts.ask()
        });
        AskCounts {
            mailbox: self,
            number,
        }
    }

    /// What the engine counted when it was last asked.
    pub(super) fn counts(&self) -> (Arc<Vec<MetricFamily>>, Health, Load) {
        let state = self.lock();
        (
            Arc::clone(&state.counts.families),
            state.health,
            state.load(),
        )
    }

    /// Ready when the engine was asked so often and answered; or cannot answer now, or never will. Then
    /// they are those of before.
    pub(super) fn poll_counts(
        &self,
        number: u64,
        cx: &mut Context<'_>,
    ) -> Poll<(Arc<Vec<MetricFamily>>, Health, Load)> {
        let mut state = self.lock();
        if !state.counts.is_answered(number) && state.health == Health::Ready {
            state.counts.wait(number, cx.waker());
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.counts())
    }

    /// Somebody who asked waits no longer.
    pub(super) fn forget_asking(&self, number: u64) {
        self.lock().counts.forget(number);
    }

    /// What the engine counts now.
    pub(super) fn set_metrics(&self, metrics: Vec<MetricFamily>) {
        let mut state = self.lock();
        state.counts.answer(metrics);
        let waiting = state.counts.take_waiting();
        drop(state);
        waiting.for_each(Waker::wake);
    }

    /// Nobody drives from now on; gives the requests that nobody will look at any more. The first
    /// reason stays.
    pub(super) fn close(&self, result: Result<(), StreamError>) -> VecDeque<Submission> {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.health = match result {
                Ok(()) => Health::Stopped,
                Err(_) => Health::Failed,
            };
            state.closed = Some(result);
        }
        let left = std::mem::take(&mut state.inbox.submissions);
        for submission in &left {
            state.queue.leave(submission.place, false);
        }
        state.step_began = None;
        let mut wakers = std::mem::take(&mut state.closing);
        wakers.extend(state.counts.take_waiting());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        left
    }
}
