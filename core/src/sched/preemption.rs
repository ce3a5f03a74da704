//! Requests that lose their blocks, to an older one or with the device, and wait again. Does not
//! decide when.

use super::request::RequestStatus;
use super::scheduler::Scheduler;
use crate::types::RequestId;

impl Scheduler {
    /// Nothing written to the device is there any more, nor what the runner had on the host: every
    /// request is computed again from its tokens, and nothing is found that was computed before.
    pub fn forget_device(&mut self) {
        for id in std::mem::take(&mut self.running).into_iter().rev() {
            self.kv.free(id);
            self.wait_again(id);
        }
        self.kv.evict_all();
        self.swap.forget_all();
    }

    /// The request has left `running` already; it was the newest there, so it is now the oldest of
    /// those that wait.
    pub(super) fn preempt(&mut self, id: RequestId) {
        let blocks = match self.requests[&id].sums_all_tokens() {
            true => None,
            false => self.kv.held_blocks(id),
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
        let request = self.requests.get_mut(&id).expect("running requests exist");
        (request.num_computed_tokens, request.num_scheduled_tokens) = (0, 0);
        request.awaits_prompt = false;
        request.status = RequestStatus::Preempted;
        self.waiting.push_front(id);
    }
}
