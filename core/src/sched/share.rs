//! What of a request goes into a step, and that it is in flight from then on. Does not decide who.

use super::output::{PLACEHOLDER_TOKEN, ScheduledSequence};
use super::scheduler::Scheduler;
use crate::types::RequestId;

impl Scheduler {
    /// Makes the next tokens of a request a part of the step being decided; they have slots.
    pub(super) fn share(&mut self, id: RequestId, num_new: usize) -> ScheduledSequence {
        let request = self
            .requests
            .get_mut(&id)
            .expect("scheduled requests exist");
        let start = request.num_tokens_with_slots();
        let end = start + num_new;
        let samples = end == request.num_tokens_with_spec() && request.generates();
        let sampling = request.sampling_inputs(samples, self.config.max_model_len);
        request.num_steps_in_flight += 1;
        request.num_scheduled_tokens += num_new;
        request.num_output_placeholders += usize::from(samples);
        let scores_prompt = request.scores_prompt();
        let prompt = &request.token_ids()[..request.num_prompt_tokens()];
        let targets = prompt.get(start + 1..(end + 1).min(prompt.len()));
        ScheduledSequence {
            request_id: id,
            token_ids: match request.token_ids().get(start..end) {
                Some(ids) => ids.to_vec(),
                // What is computed now was drawn by the step that computed all before it.
                None => vec![PLACEHOLDER_TOKEN; num_new],
            },
            num_computed_tokens: start,
            block_tables: self.kv.block_tables(id).to_vec(),
            samples,
            sampling,
            prompt_logprob_targets: match targets {
                Some(ids) if scores_prompt => ids.to_vec(),
                _ => Vec::new(),
            },
            pooling: request.pool_share(start, end),
        }
    }
}
