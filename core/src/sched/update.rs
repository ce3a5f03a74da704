//! Taking in what a step computed: counters advance, tokens are appended, requests end and give
//! their blocks back. Decides nothing about the next step.

use super::error::RequestError;
use super::output::{ModelRunnerOutput, ScheduledSequence, SchedulerOutput, SequenceOutput};
use super::request::{Request, RequestStatus};
use super::scheduler::Scheduler;
use crate::types::{FinishReason, RequestId, StopReason, TokenId, TokenLogprobs};

/// What a step brought one request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestUpdate {
    /// Which.
    pub request_id: RequestId,
    /// The token it gained; `None` while its prompt is computed, and for a stop id.
    pub token_id: Option<TokenId>,
    /// Log-probabilities of that token, where asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// Log-probabilities of the next prompt tokens, where asked for, in order from the second.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The sum of its final hidden states, where it asked for it and it is whole.
    pub pooled: Option<Vec<f32>>,
    /// Tokens it did not have to compute, because an earlier request had.
    pub num_cached_tokens: usize,
    /// The request is over: ended, or failed by itself.
    pub finished: Option<Result<FinishReason, RequestError>>,
    /// What ended it, where the request asked for that.
    pub stop_reason: Option<StopReason>,
}

impl Scheduler {
    /// Takes in what a step computed: advances counters, appends tokens, ends requests and frees
    /// their blocks. Requests aborted since the step was scheduled are passed over.
    ///
    /// `vocab_size` bounds the ids a model may draw.
    ///
    /// # Panics
    /// Where the step is not the oldest in flight.
    pub fn update_from_output(
        &mut self,
        step: &SchedulerOutput,
        output: ModelRunnerOutput,
        vocab_size: usize,
    ) -> Vec<RequestUpdate> {
        let oldest = self.in_flight.next();
        assert_eq!(oldest, Some(step.number), "outputs come in order");
        self.finished_ids.confirm(step.number);
        self.preempted_ids.confirm(step.number);
        self.metrics.num_copied_blocks += step.block_copies.len() as u64;
        self.kv.confirm_copies(step.number);
        self.swap.confirm(step.number);
        let mut outputs = output.sequences.into_iter();
        let mut updates = Vec::with_capacity(step.scheduled.len());
        for share in &step.scheduled {
            let output = outputs.next().filter(|o| o.request_id == share.request_id);
            let Some(request) = self.requests.get_mut(&share.request_id) else {
                continue;
            };
            request.num_steps_in_flight -= 1;
            request.num_output_placeholders -= usize::from(share.samples);
            let max_model_len = self.config.max_model_len;
            let update = advance(request, share, output, vocab_size, max_model_len);
            match update.finished {
                // Perhaps of a kind that would spoil what others find.
                Some(Err(_)) => self.kv.evict(share.request_id),
                _ => self.kv.cache_blocks(request),
            }
            let num_computed_tokens = request.num_computed_tokens;
            if update.finished.is_some() {
                self.remove(share.request_id);
            } else {
                self.kv.free_unseen(share.request_id, num_computed_tokens);
            }
            updates.push(update);
        }
        updates
    }
}

/// Moves one request past its share of a step.
fn advance(
    request: &mut Request,
    share: &ScheduledSequence,
    output: Option<SequenceOutput>,
    vocab_size: usize,
    max_model_len: usize,
) -> RequestUpdate {
    let request_id = share.request_id;
    let mut update = RequestUpdate {
        request_id,
        token_id: None,
        logprobs: None,
        prompt_logprobs: Vec::new(),
        pooled: None,
        num_cached_tokens: request.num_cached_tokens(),
        finished: None,
        stop_reason: None,
    };
    let position = share.end_position();
    let missing = RequestError::MissingOutput {
        request_id,
        position,
    };
    let Some(output) = output else {
        update.finished = Some(Err(missing));
        return update;
    };
    if let Some(error) = output.error {
        update.finished = Some(Err(error));
        return update;
    }
    if output.prompt_logprobs.len() != share.prompt_logprob_targets.len()
        || output.token_id.is_some() != share.samples
        || output.pooled.is_some() != share.pooling.is_some_and(|pool| pool.ends)
        || output.logprobs.is_some() != (share.samples && share.sampling.params.logprobs.is_some())
    {
        update.finished = Some(Err(missing));
        return update;
    }
    if output.pooled.iter().flatten().any(|v| !v.is_finite()) {
        update.finished = Some(Err(RequestError::InvalidHiddenState { request_id }));
        return update;
    }
    // Where it gave up its blocks since, it holds nothing of what was computed; the token is its own.
    if request.status == RequestStatus::Running {
        request.num_computed_tokens = position;
        request.num_scheduled_tokens -= share.num_scheduled_tokens();
    }
    // Row i of the share reports on prompt token `start + 1 + i`, entry `start + i` of the list.
    let reported = request
        .num_prompt_logprobs
        .saturating_sub(share.num_computed_tokens);
    update.prompt_logprobs = output.prompt_logprobs.into_iter().skip(reported).collect();
    request.num_prompt_logprobs += update.prompt_logprobs.len();

    if let Some(id) = output.token_id {
        // What the draw says where no logit is left over, or none is a number.
        if id == TokenId::MAX && request.max_num_banned() >= vocab_size {
            update.finished = Some(Err(RequestError::EverythingBanned {
                request_id,
                position,
            }));
            return update;
        }
        if id as usize >= vocab_size {
            update.finished = Some(Err(RequestError::InvalidSample {
                request_id,
                id,
                position,
                vocab_size,
            }));
            return update;
        }
        let reason = request.append_token(id, max_model_len);
        match reason {
            Some(FinishReason::Stop) => update.stop_reason = stop_reason(request, id),
            _ => {
                update.token_id = Some(id);
                update.logprobs = output.logprobs;
            }
        }
        update.finished = reason.map(Ok);
    } else if !request.generates() && position == request.num_tokens() {
        update.pooled = output.pooled;
        update.finished = Some(Ok(request.reason_at_prompt_end()));
    }
    update
}

/// What is said of the id that ended a request: nothing, where generations end at it anyway.
fn stop_reason(request: &Request, id: TokenId) -> Option<StopReason> {
    let asked = &request.params().stop_token_ids;
    let is_eos = request.stop_ids[asked.len()..].contains(&id);
    (asked.contains(&id) && !is_eos).then_some(StopReason::TokenId(id))
}
