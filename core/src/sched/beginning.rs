//! Who of those that wait is let in, and what a request that holds nothing begins with: blocks found by
//! name, or those of a running request with the same prompt. Preempts nobody.

use super::computed_blocks::ComputedBlocks;
use super::output::ScheduledSequence;
use super::request::RequestStatus;
use super::scheduler::Scheduler;
use super::step_budget::StepBudget;
use crate::types::RequestId;

/// What a request that holds nothing can begin with.
pub(super) enum Beginning {
    /// These blocks, perhaps none.
    Found(ComputedBlocks),
    /// More, once another request has computed the prompt they share.
    Awaited,
}

impl Scheduler {
    /// Lets in those that wait, in their order, as long as there is room for them.
    pub(super) fn admit_waiting(
        &mut self,
        budget: &mut StepBudget,
        scheduled: &mut Vec<ScheduledSequence>,
    ) {
        while !budget.is_spent()
            && self.running.len() < self.config.max_num_seqs
            && let Some(&id) = self.waiting.front()
            // Until the steps are done that it was part of when it gave way, its tokens are not known.
            && self.requests[&id].num_steps_in_flight == 0
        {
            let swapped = self.swap.num_tokens(id);
            let mut found = match self.beginning(id) {
                Beginning::Found(found) => found,
                Beginning::Awaited if swapped.is_some() => {
                    self.kv.get_computed_blocks(&self.requests[&id])
                }
                Beginning::Awaited => {
                    let request = self.requests.get_mut(&id).expect("queued requests exist");
                    request.awaits_prompt = true;
                    request.status = RequestStatus::Running;
                    self.waiting.pop_front();
                    self.run(id);
                    continue;
                }
            };
            // All of it must fit now, although only a chunk is computed: else two long prompts
            // would take turns at throwing each other out.
            let num_tokens = self.requests[&id].num_tokens_with_spec();
            // Less than a block is sooner computed than brought back.
            let swapped =
                swapped.filter(|n| *n >= found.num_cached_tokens + self.config.block_size);
            if let Some(start) = swapped {
                found = self.kv.get_computed_blocks(&self.requests[&id]);
                self.kv.trim(&mut found, start);
            }
            if !self.kv.has_room_for(num_tokens, &found) {
                break;
            }
            let start = swapped.unwrap_or(found.num_cached_tokens);
            let request = &self.requests[&id];
            let num_new = budget.num_new_tokens(request, start, num_tokens - start);
            let max_model_len = self.config.max_model_len;
            if num_new == 0 || !self.reservations.reserve(request, max_model_len) {
                break;
            }
            self.begin(id, found);
            let moved = match swapped {
                Some(_) => self.kv.restore(id, start),
                None => Vec::new(),
            };
            self.swap.swap_in(id, moved);
            let request = self.requests.get_mut(&id).expect("queued requests exist");
            request.num_computed_tokens = start;
            let end = (start + num_new).min(self.kv.max_num_tokens(id, start));
            let fits = end > start && self.kv.allocate_slots(id, start..end);
            assert!(fits, "a part of what fits does not fit");
            self.waiting.pop_front();
            self.run(id);
            budget.take(&self.requests[&id], start, end - start);
            scheduled.push(self.share(id, end - start));
        }
    }

    /// What a request that holds nothing can begin with.
    pub(super) fn beginning(&self, id: RequestId) -> Beginning {
        let request = &self.requests[&id];
        let found = self.kv.get_computed_blocks(request);
        let shared = request.num_shared_prompt_tokens();
        if shared <= found.num_cached_tokens {
            return Beginning::Found(found);
        }
        let running = self.running.iter().map(|id| &self.requests[id]);
        let siblings = running.filter(|r| r.shares_prompt_with(request) && !r.awaits_prompt);
        let mut awaited = false;
        for sibling in siblings {
            if sibling.num_computed_tokens < shared {
                awaited = true;
            } else if let Some(blocks) = self.kv.shared_blocks(sibling.id(), shared) {
                return Beginning::Found(blocks);
            }
        }
        match awaited {
            true => Beginning::Awaited,
            false => Beginning::Found(found),
        }
    }

    /// Lets a request begin with the blocks found for it.
    pub(super) fn begin(&mut self, id: RequestId, found: ComputedBlocks) {
        let request = self.requests.get_mut(&id).expect("queued requests exist");
        request.num_computed_tokens = found.num_cached_tokens;
        if request.num_cached_tokens.is_none() {
            request.num_cached_tokens = Some(found.num_cached_tokens);
            self.metrics.prefix_cache_queries += request.num_tokens() as u64;
            self.metrics.prefix_cache_hits += found.num_cached_tokens as u64;
        }
        request.awaits_prompt = false;
        request.status = RequestStatus::Running;
        self.kv.share(id, found);
    }
}
