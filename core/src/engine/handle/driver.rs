//! The far end of a handle: takes what was asked between two steps, steps, and delivers. Owns the
//! engine; knows no thread, and no device beyond that it may be lost.

use super::mailbox::{Ending, Health, Mailbox};
use super::stream::{Outbox, StreamError};
use super::submission::{Submission, Wish};
use super::{EngineHandle, HandleOptions};
use crate::clock::Clock;
use crate::engine::llm::LlmEngine;
use crate::engine::output_processor::RequestOutput;
use crate::error::Error;
use crate::runner::ExecuteModel;
use crate::types::{FinishReason, RequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Poll;

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A step; there may be more to do.
    Stepped,
    /// Nothing: all is answered, or nobody reads.
    Idle,
    /// The engine has ended, as it was asked to or because it could not go on.
    Ended,
}

/// A request that is not over.
#[derive(Debug)]
struct Live {
    /// Its name outside.
    id: RequestId,
    /// Its place in the queue.
    place: RequestId,
    outbox: Arc<Outbox>,
}

/// Drives an engine for its handles.
///
/// Not `Send`: natively a thread of its own awaits [`run`](Self::run), in a browser a worker does.
/// If it is dropped, all streams end with [`StreamError::Gone`].
pub struct EngineDriver<R: ExecuteModel, C: Clock> {
    engine: LlmEngine<R, C>,
    mailbox: Arc<Mailbox>,
    /// By their names in the engine.
    live: BTreeMap<RequestId, Live>,
    /// From names outside to names in the engine.
    names: BTreeMap<RequestId, RequestId>,
    /// Those that nobody reads, by their names in the engine.
    unread: BTreeSet<RequestId>,
}

impl<R: ExecuteModel, C: Clock> EngineDriver<R, C> {
    /// A driver, and a handle for others. What was added to the engine before stays unheard.
    pub fn new(engine: LlmEngine<R, C>, options: HandleOptions) -> (Self, EngineHandle)
    where
        C: Clone + Send + Sync + 'static,
    {
        let max_num_seqs = engine.core().scheduler().config().max_num_seqs;
        let mailbox = Arc::new(Mailbox::new(options, max_num_seqs));
        let handle = EngineHandle::new(Arc::clone(&mailbox), &engine);
        let driver = Self {
            engine,
            mailbox,
            live: BTreeMap::new(),
            names: BTreeMap::new(),
            unread: BTreeSet::new(),
        };
        // There is something to tell however long the first step takes.
        driver.tell_metrics();
        (driver, handle)
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &LlmEngine<R, C> {
        &self.engine
    }

    /// Drives until the engine ends; sleeps while there is nothing to do. Between two steps it lets
    /// others on its thread run.
    ///
    /// # Errors
    /// The engine could not go on; all streams say the same.
    pub async fn run(&mut self) -> Result<(), StreamError> {
        loop {
            match self.turn().await {
                Turn::Stepped => yield_now().await,
                Turn::Idle => std::future::poll_fn(|cx| self.mailbox.poll_mail(cx)).await,
                Turn::Ended => {
                    return std::future::poll_fn(|cx| self.mailbox.poll_closed(cx)).await;
                }
            }
        }
    }

    /// Takes what was asked, computes one step if there is one, and delivers.
    pub async fn turn(&mut self) -> Turn {
        let inbox = self.mailbox.take();
        for submission in inbox.submissions {
            self.take_in(submission);
        }
        for id in inbox.reads {
            if let Some(&id) = self.names.get(&id) {
                self.engine.core_mut().resume(id);
                if self.unread.remove(&id) {
                    self.mailbox.take_up(self.live[&id].place);
                }
            }
        }
        for (id, reason) in inbox.ends {
            if let Some(&id) = self.names.get(&id) {
                self.end(id, reason);
            }
        }
        if inbox.ending == Some(Ending::Stop) {
            let all: Vec<_> = self.live.keys().copied().collect();
            for id in all {
                self.end(id, FinishReason::Abort);
            }
        }
        if inbox.wants_metrics {
            self.tell_metrics();
        }
        if !self.engine.has_unfinished_requests() {
            self.tell_load();
            // What nobody reads is paused, and not over.
            if inbox.ending.is_none() || !self.live.is_empty() {
                return Turn::Idle;
            }
            self.close(Ok(()));
            return Turn::Ended;
        }
        let began = self.engine.core().clock().now();
        self.mailbox.set_step_began(Some(began));
        let stepped = self.engine.try_step().await;
        self.mailbox.set_step_began(None);
        match stepped {
            Ok(outputs) => self.deliver(outputs),
            Err(error) if error.is_device_lost() => {
                // Who asks meanwhile does not wait for the next device.
                self.tell_metrics();
                self.mailbox.set_health(Health::Recovering);
                if let Err(error) = self.engine.recover(error).await {
                    self.close(Err(StreamError::DeviceLost(Arc::new(error))));
                    return Turn::Ended;
                }
                self.mailbox.set_health(Health::Ready);
            }
            Err(error) => self.end_step(error),
        }
        self.tell_load();
        Turn::Stepped
    }

    /// Ends all streams with this fault, as whoever caught a panic of [`run`](Self::run) must.
    pub fn fail(&mut self, fault: String) {
        self.close(Err(StreamError::Panicked(fault)));
    }

    fn take_in(&mut self, submission: Submission) {
        let Submission {
            id,
            place,
            ahead,
            arrival,
            prompt_token_ids: ids,
            wish,
            outbox,
        } = submission;
        let added = match wish {
            Wish::Answers(params, form) => {
                self.engine.add_checked(ids, params, form, ahead, arrival)
            }
            Wish::Embedding(params) => {
                let core = self.engine.core_mut();
                core.add_pooling(ids, params, ahead, arrival)
                    .map_err(Error::from)
            }
        };
        match added {
            Ok(inner) => {
                self.names.insert(id, inner);
                self.live.insert(inner, Live { id, place, outbox });
            }
            Err(error) => {
                outbox.fail(StreamError::Refused(Arc::new(error)));
                self.mailbox.forget(place, false);
            }
        }
    }

    fn end(&mut self, id: RequestId, reason: FinishReason) {
        let outputs = self.engine.end(id, reason);
        self.deliver(outputs);
    }

    fn deliver(&mut self, outputs: Vec<RequestOutput>) {
        for mut output in outputs {
            let inner = output.output.request_id;
            let Some(live) = self.live.get(&inner) else {
                continue;
            };
            output.output.request_id = live.id;
            let place = live.place;
            let full = live.outbox.push(output);
            if live.outbox.is_over() {
                self.forget(inner);
            } else if full {
                self.engine.core_mut().pause(inner);
                if self.unread.insert(inner) {
                    self.mailbox.set_aside(place);
                }
            }
        }
    }

    fn forget(&mut self, inner: RequestId) {
        if let Some(live) = self.live.remove(&inner) {
            self.names.remove(&live.id);
            let is_unread = self.unread.remove(&inner);
            self.mailbox.forget(live.place, is_unread);
        }
    }

    /// A step failed though the device is there: those that took part in it would fail again, and
    /// the others shall not wait for it.
    fn end_step(&mut self, error: Error) {
        let error = StreamError::StepFailed(Arc::new(error));
        let core = self.engine.core();
        let (mut took_part, others): (Vec<_>, Vec<_>) =
            self.live.keys().partition(|id| core.is_running(**id));
        if took_part.is_empty() {
            took_part = others
                .into_iter()
                .filter(|id| !core.is_paused(*id))
                .collect();
        }
        for id in took_part {
            self.live[&id].outbox.fail(error.clone());
            self.engine.fail(id);
            self.forget(id);
        }
    }

    fn tell_load(&self) {
        let scheduler = self.engine.core().scheduler();
        let cache = scheduler.kv_cache();
        let usable = cache.num_usable_blocks().max(1);
        let held = usable - cache.num_free_blocks().min(usable);
        let permille = u32::try_from(1000 * held / usable).unwrap_or(1000);
        let running = scheduler.num_running_requests();
        let waiting = scheduler.num_waiting_requests();
        self.mailbox.set_load(running, waiting, permille);
        if let Some(costs) = self.engine.core().step_costs() {
            self.mailbox.set_steps(costs);
        }
    }

    fn tell_metrics(&self) {
        let core = self.engine.core();
        let families = core.metrics().families(&core.gauges());
        self.mailbox.set_metrics(families);
    }

    /// Ends every stream that is not over.
    fn close(&mut self, result: Result<(), StreamError>) {
        self.engine.core_mut().fail_all();
        self.tell_metrics();
        let error = result.clone().err().unwrap_or(StreamError::Gone);
        for submission in self.mailbox.close(result) {
            submission.outbox.fail(error.clone());
        }
        let live: Vec<_> = self.live.keys().copied().collect();
        for id in live {
            self.live[&id].outbox.fail(error.clone());
            self.forget(id);
        }
    }
}

impl<R: ExecuteModel, C: Clock> Drop for EngineDriver<R, C> {
    fn drop(&mut self) {
        self.close(Err(StreamError::Gone));
    }
}

/// Lets others on this thread run.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
