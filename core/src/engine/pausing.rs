//! Requests that nobody waits for just now: taken out of the scheduler with their tokens, and put back
//! in their old place. Meanwhile they hold neither blocks nor a seat, so that only they stand still; what the
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

    /// Lets a paused request go on, before those that came after it; nothing happens if it is not
    /// paused.
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

#[cfg(test)]
mod tests {
    use super::super::paged_hash::{config, engine, prompt, served_alone};
    use crate::sched::SchedulerConfig;
    use pollster::block_on;
    use std::collections::BTreeMap;

    #[test]
    fn who_was_paused_keeps_its_place() {
        let alone = served_alone();
        let mut engine = engine(SchedulerConfig {
            max_num_seqs: 1,
            ..config()
        });
        let ids = [1, 2, 0, 4].map(|index| {
            let (ids, params) = prompt(index);
            engine.add_request(ids, params).unwrap()
        });
        let mut tokens = BTreeMap::<_, Vec<_>>::new();
        let mut over = Vec::new();
        let mut step = 0;
        while engine.has_unfinished_requests() {
            for output in block_on(engine.step()).unwrap() {
                let so_far = tokens.entry(output.request_id).or_default();
                so_far.extend(output.token_ids);
                if output.finished.is_some() {
                    over.push(output.request_id);
                }
            }
            engine.scheduler().check_integrity().unwrap();
            step += 1;
            // Twice, so that a second new name does no harm either.
            match step {
                5 | 20 => engine.pause(ids[0]),
                10 | 30 => engine.resume(ids[0]),
                _ => {}
            }
        }
        assert_eq!(over, [ids[1], ids[0], ids[2], ids[3]]);
        for (id, index) in ids.iter().zip([1, 2, 0, 4]) {
            assert_eq!(tokens[id], alone[index].token_ids, "prompt {index}");
        }
    }
}
