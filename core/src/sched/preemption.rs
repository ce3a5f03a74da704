//! Requests that lose their blocks, to an older one or with the device, and wait again. Does not
//! decide when.

use super::request::RequestStatus;
use super::scheduler::Scheduler;
use crate::types::RequestId;

impl Scheduler {
    /// Nothing written to the device is there any more, nor what the runner had on the host: every
    /// request is computed again from its tokens, and nothing is found that was computed before.
    ///
    /// The steps in flight are taken back as by [`retract`](Self::retract).
    pub fn forget_device(&mut self) {
        self.retract();
        for id in std::mem::take(&mut self.running).into_iter().rev() {
            self.kv.free(id);
            self.wait_again(id);
            self.preempted_ids.push(id);
        }
        self.kv.evict_all();
        self.swap.forget_all();
    }

    /// Takes back the steps in flight, as one of them failed: what they computed counts for nothing,
    /// what they drew is drawn again, and what they were told besides is told again. Their outputs
    /// must not be taken in any more.
    ///
    /// All else stands: who runs and who waits, and what was confirmed. Pages hold what they held of
    /// confirmed tokens, as those steps wrote behind them only.
    pub fn retract(&mut self) {
        self.in_flight.end = self.in_flight.start;
        for (id, request) in &mut self.requests {
            request.num_scheduled_tokens = 0;
            request.num_steps_in_flight = 0;
            request.num_output_placeholders = 0;
            self.kv.take_back(*id, request.num_computed_tokens);
        }
        self.kv.copies.take_back();
        self.swap.take_back();
        self.finished_ids.take_back();
        self.preempted_ids.take_back();
    }

    /// The request has left `running` already. It keeps its place in the order of all.
    ///
    /// It may be part of steps in flight. They go on writing into its pages before anything behind
    /// them in the queue reads or overwrites those, and the tokens they draw are its own as ever.
    pub(super) fn preempt(&mut self, id: RequestId) {
        let num_tokens = self.requests[&id].num_computed_tokens;
        let blocks = match self.requests[&id].sums_all_tokens() {
            true => None,
            false => self.kv.held_blocks(id, num_tokens),
        };
        match self.swap.swap_out(&self.requests[&id], blocks) {
            true => self.metrics.num_preemptions_swap += 1,
            false => self.metrics.num_preemptions_recompute += 1,
        }
        self.kv.free(id);
        self.wait_again(id);
        self.preempted_ids.push(id);
    }

    fn wait_again(&mut self, id: RequestId) {
        self.reservations.release(id);
        let request = self.requests.get_mut(&id).expect("running requests exist");
        (request.num_computed_tokens, request.num_scheduled_tokens) = (0, 0);
        request.awaits_prompt = false;
        request.status = RequestStatus::Preempted;
        self.wait(id);
    }
}
