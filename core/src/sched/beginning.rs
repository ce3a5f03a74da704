//! What a request that holds nothing begins with: blocks found by name, or those of a running request
//! with the same prompt. Admits nobody.

use super::computed_blocks::ComputedBlocks;
use super::request::RequestStatus;
use super::scheduler::Scheduler;
use crate::types::RequestId;

/// What a request that holds nothing can begin with.
pub(super) enum Beginning {
    /// These blocks, perhaps none.
    Found(ComputedBlocks),
    /// More, once another request has computed the prompt they share.
    Awaited,
}

impl Scheduler {
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
