//! Requests that nobody waits for just now: taken out of the scheduler with their tokens, and put back
//! as newcomers. Meanwhile they hold neither blocks nor a seat, so that only they stand still; what the
//! cache still has of them is found again, and the rest is computed again from their tokens.

use super::core::EngineCore;
use crate::clock::Clock;
use crate::runner::ExecuteModel;
use crate::sched::RequestStatus;
use crate::types::RequestId;

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Computes a request no further, until [`resume`](Self::resume). Of steps in flight nothing comes
    /// out for it any more: what they draw is drawn again.
    pub(super) fn pause(&mut self, id: RequestId) {
        for answer in self.answers_of(id) {
            if let Some(request) = self.scheduler.abort(answer) {
                self.paused.insert(answer, request);
            }
        }
    }

    /// Lets a paused request go on, behind those that came before; nothing happens if it is not.
    pub(super) fn resume(&mut self, id: RequestId) {
        for answer in self.answers_of(id) {
            let Some(request) = self.paused.remove(&answer) else {
                continue;
            };
            let new = RequestId(self.next_id);
            self.next_id += 1;
            self.rename(answer, new);
            let added = self.scheduler.add_request(request.renewed(new));
            added.expect("what was taken in under these limits is taken in again");
        }
    }

    /// Whether all that is left of a request is paused.
    pub(super) fn is_paused(&self, id: RequestId) -> bool {
        let mut answers = self.answers_of(id).into_iter();
        answers.all(|answer| self.paused.contains_key(&answer))
    }

    /// Whether a request takes part in steps.
    pub(super) fn is_running(&self, id: RequestId) -> bool {
        let running = |answer| {
            let request = self.scheduler.request(answer);
            request.is_some_and(|r| r.status() == RequestStatus::Running)
        };
        self.answers_of(id).into_iter().any(running)
    }

    /// The answers of a request that are not over, by their ids in the scheduler.
    pub(super) fn answers_of(&self, id: RequestId) -> Vec<RequestId> {
        let further = self.further_answers.iter();
        let further = further.filter(|(_, (first, _))| *first == id);
        let first = self.ledger.is_open(id).then_some(id);
        first
            .into_iter()
            .chain(further.map(|(id, _)| *id))
            .collect()
    }

    /// Keeps whatever is kept by an answer's id under another one.
    fn rename(&mut self, old: RequestId, new: RequestId) {
        let answer = self.further_answers.remove(&old).unwrap_or((old, 0));
        self.further_answers.insert(new, answer);
        self.constraints.rename(old, new);
        self.ledger.rename(old, new);
    }
}
