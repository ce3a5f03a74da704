//! How requests end that do not end by themselves: given up, stopped at a text, or failed with a step. Knows no
//! reason but what it is told.

use super::core::{EngineCore, EngineOutput};
use crate::clock::Clock;
use crate::runner::ExecuteModel;
use crate::sched::{Request, RequestUpdate};
use crate::types::{FinishReason, RequestId};

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Ends a request at once: says so of each of its answers that is not over already.
    pub fn abort(&mut self, id: RequestId) -> Vec<EngineOutput> {
        self.end_all(id, FinishReason::Abort)
    }

    /// Ends a request for a reason: says so of each of its answers that is not over already.
    pub(super) fn end_all(&mut self, id: RequestId, reason: FinishReason) -> Vec<EngineOutput> {
        let answers = self.answers_of(id).into_iter();
        answers.filter_map(|id| self.end(id, reason)).collect()
    }

    /// Ends one answer of a request at its stop string, without a word.
    pub(super) fn stop(&mut self, request_id: RequestId, index: usize) {
        let mut further = self.further_answers.iter();
        let further = further.find(|(_, answer)| **answer == (request_id, index));
        let id = further.map(|(id, _)| *id);
        if let Some(id) = id.or((index == 0).then_some(request_id)) {
            self.end(id, FinishReason::Stop);
        }
    }

    /// Ends a request with the step that failed, without a word: it counts as an error.
    pub(super) fn fail(&mut self, id: RequestId) {
        let now = self.clock.now();
        for id in self.answers_of(id) {
            if self.take_out(id).is_some() {
                self.ledger.fail(id, now);
                self.pooling.remove(&id);
                self.forget_answer(id);
            }
        }
    }

    /// The engine goes on no more: all requests that are not over count as errors.
    pub(super) fn fail_all(&mut self) {
        self.ledger.fail_all(self.clock.now());
    }

    /// What is kept of an answer beside its tokens is of no more use.
    pub(super) fn forget_answer(&mut self, id: RequestId) {
        self.constraints.forget(id);
        self.further_answers.remove(&id);
    }

    fn end(&mut self, id: RequestId, reason: FinishReason) -> Option<EngineOutput> {
        let request = self.take_out(id)?;
        let update = RequestUpdate {
            request_id: id,
            token_id: None,
            logprobs: None,
            prompt_logprobs: Vec::new(),
            pooled: None,
            num_cached_tokens: request.num_cached_tokens(),
            finished: Some(Ok(reason)),
            stop_reason: None,
        };
        Some(self.record(update))
    }

    /// Takes an answer that is not over out of the steps.
    fn take_out(&mut self, id: RequestId) -> Option<Request> {
        let request = self
            .scheduler
            .abort(id)
            .or_else(|| self.paused.remove(&id))?;
        if self.scheduler.num_unfinished_requests() == 0 {
            // Whoever comes next would wait for them as if they had lasted until then.
            self.give_up_steps_in_flight();
        }
        Some(request)
    }
}
