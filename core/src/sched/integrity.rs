//! What must hold of a scheduler at any moment. Changes nothing.

use super::request::RequestStatus;
use super::scheduler::Scheduler;
use crate::types::RequestId;

impl Scheduler {
    /// Checks everything that must hold at any moment.
    ///
    /// # Errors
    /// A sentence naming the first contradiction.
    pub fn check_integrity(&self) -> Result<(), String> {
        let sequences = self.running.iter().map(|id| {
            let request = &self.requests[id];
            let next = request.num_computed_tokens;
            (*id, next..request.num_tokens_with_slots())
        });
        self.kv.check_integrity(&sequences.collect())?;
        self.swap.check_integrity(|id| self.running.contains(&id))?;
        self.reservations
            .check_integrity(|id| self.running.contains(&id))?;
        let rank = |id: &&RequestId| self.requests.get(*id).map(|request| request.rank);
        if !self.running.iter().is_sorted_by_key(|id| rank(&id))
            || !self.waiting.iter().is_sorted_by_key(|id| rank(&id))
        {
            let (running, waiting) = (&self.running, &self.waiting);
            return Err(format!(
                "requests are out of order: {running:?}, {waiting:?}"
            ));
        }
        let mut order: Vec<_> = self.running.iter().chain(&self.waiting).collect();
        order.sort_unstable();
        if order.len() != self.requests.len() || order.windows(2).any(|w| w[0] == w[1]) {
            return Err(format!(
                "{} requests, but {order:?} in the queues",
                self.requests.len()
            ));
        }
        if self.running.len() > self.config.max_num_seqs {
            return Err(format!("{} requests are running", self.running.len()));
        }
        for (id, request) in &self.requests {
            let running = self.running.contains(id);
            if running != (request.status == RequestStatus::Running) {
                return Err(format!(
                    "{id} is in the wrong queue for {:?}",
                    request.status
                ));
            }
            if request.awaits_prompt && !(running && self.kv.block_tables(*id).is_empty()) {
                return Err(format!(
                    "{id} awaits a prompt, but holds blocks or does not run"
                ));
            }
            let steps = request.num_steps_in_flight;
            if steps > self.num_steps_in_flight()
                || request.num_output_placeholders > steps
                || (running && (request.num_scheduled_tokens < steps))
                || request.num_tokens_with_slots() > request.num_tokens_with_spec()
            {
                return Err(format!(
                    "{id} counts its steps in flight wrongly: {request:?}"
                ));
            }
            if !running && request.num_tokens_with_slots() != 0 {
                return Err(format!("{id} counts computed tokens, but holds no blocks"));
            }
        }
        Ok(())
    }
}
