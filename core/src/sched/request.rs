//! One request: its tokens and how far they are computed. Knows no blocks and no other request.

use super::block_hash::BlockHash;
use super::output::PoolShare;
use super::rank::{Ahead, Rank};
use crate::types::{
    FinishReason, PoolingParams, PoolingType, RequestId, SamplingHistory, SamplingInputs,
    SamplingParams, TokenId,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// Not yet admitted.
    Waiting,
    /// Holds blocks and takes part in steps.
    Running,
    /// Gave up its blocks to an older request; will be computed again from position 0.
    Preempted,
    /// Over.
    Finished,
}

/// A request.
///
/// ```text
///  |------------- prompt -------------|------ output ------|
///  0        num_computed_tokens   num_prompt_tokens    num_tokens
///  |-- in the cache --|------- to be computed -------------|
/// ```
///
/// With steps in flight, `num_scheduled_tokens` follow `num_computed_tokens`: they have slots, and
/// count as computed when the outputs come. Behind `num_tokens` stand as many placeholders as tokens
/// are being drawn.
#[derive(Clone, Debug)]
pub struct Request {
    id: RequestId,
    params: Arc<SamplingParams>,
    /// Which of the answers that are asked for in this way.
    index: usize,
    /// It asks for an embedding of its prompt, and draws nothing.
    pooling: Option<PoolingType>,
    /// Those asked for come first.
    pub(super) stop_ids: Arc<[TokenId]>,
    /// Not to be drawn before `params.min_tokens` are.
    held_ids: Vec<TokenId>,
    token_ids: Vec<TokenId>,
    num_prompt_tokens: usize,
    /// Tokens whose keys and values are in the cache.
    pub(super) num_computed_tokens: usize,
    /// Tokens computed by steps in flight; they have slots already.
    pub(super) num_scheduled_tokens: usize,
    /// Steps in flight that it takes part in, those before a preemption too.
    pub(super) num_steps_in_flight: usize,
    /// Tokens that steps in flight draw.
    pub(super) num_output_placeholders: usize,
    /// Prompt log-probabilities reported so far; those computed again after a preemption are not
    /// reported again.
    pub(super) num_prompt_logprobs: usize,
    /// Tokens that were found in the cache when it first began.
    pub(super) num_cached_tokens: Option<usize>,
    /// It runs, but holds no blocks yet: another computes the prompt they share.
    pub(super) awaits_prompt: bool,
    /// The first of the requests that have this prompt in common.
    first_of_prompt: RequestId,
    /// What is computed before it of what came with it.
    pub(super) ahead: Ahead,
    pub(super) status: RequestStatus,
    /// Its place among the others, once it was added.
    pub(super) rank: Option<Rank>,
    /// Names of its full blocks, as far as they were asked for.
    block_hashes: Vec<BlockHash>,
}

impl Request {
    /// A request that waits. It ends at `params.stop_token_ids` and, unless `params.ignore_eos`,
    /// at `eos_token_ids`.
    pub fn new(
        id: RequestId,
        prompt_token_ids: Vec<TokenId>,
        params: impl Into<Arc<SamplingParams>>,
        eos_token_ids: &[TokenId],
    ) -> Self {
        let params = params.into();
        let mut stop_ids = params.stop_token_ids.clone();
        let mut held_ids = Vec::new();
        if params.min_tokens > 0 {
            held_ids.extend(stop_ids.iter().chain(eos_token_ids));
        }
        if !params.ignore_eos {
            stop_ids.extend_from_slice(eos_token_ids);
        }
        Self {
            id,
            params,
            index: 0,
            pooling: None,
            stop_ids: stop_ids.into(),
            held_ids,
            num_prompt_tokens: prompt_token_ids.len(),
            token_ids: prompt_token_ids,
            num_computed_tokens: 0,
            num_scheduled_tokens: 0,
            num_steps_in_flight: 0,
            num_output_placeholders: 0,
            num_prompt_logprobs: 0,
            num_cached_tokens: None,
            awaits_prompt: false,
            first_of_prompt: id,
            ahead: Ahead::default(),
            status: RequestStatus::Waiting,
            rank: None,
            block_hashes: Vec::new(),
        }
    }

    /// A request for an embedding of a prompt that waits.
    pub fn pooling(id: RequestId, prompt_token_ids: Vec<TokenId>, wanted: &PoolingParams) -> Self {
        let params = SamplingParams {
            max_tokens: 0,
            cache_salt: wanted.cache_salt.clone(),
            priority: wanted.priority,
            ..SamplingParams::default()
        };
        Self {
            pooling: Some(wanted.pooling),
            ..Self::new(id, prompt_token_ids, params, &[])
        }
    }

    /// Whether every token must be computed in one go from the first on, as a sum over them is kept
    /// on the device: nothing is taken over from others, and nothing comes back from the host.
    pub fn sums_all_tokens(&self) -> bool {
        self.pooling == Some(PoolingType::Mean)
    }

    /// What is pooled of a share from `start` to `end`.
    pub(super) fn pool_share(&self, start: usize, end: usize) -> Option<PoolShare> {
        let ends = end == self.num_prompt_tokens;
        let (first, begins) = match self.pooling? {
            PoolingType::Mean => (0, start == 0),
            PoolingType::Last if ends => (end - start - 1, true),
            PoolingType::Last => return None,
        };
        Some(PoolShare {
            first,
            begins,
            ends,
        })
    }

    /// How it ends once its prompt is computed, if it draws nothing.
    pub(super) fn reason_at_prompt_end(&self) -> FinishReason {
        match self.pooling {
            Some(_) => FinishReason::Stop,
            None => FinishReason::Length,
        }
    }

    /// The same with its tokens under another name: a newcomer that keeps its place among the others.
    #[must_use]
    pub fn renewed(self, id: RequestId) -> Self {
        Self {
            id,
            num_computed_tokens: 0,
            num_scheduled_tokens: 0,
            num_steps_in_flight: 0,
            num_output_placeholders: 0,
            awaits_prompt: false,
            status: RequestStatus::Waiting,
            ..self
        }
    }

    /// Says that the prompt is also that of `first`, an earlier request: it is computed once, and
    /// the blocks of it are shared, the last one until somebody writes into it.
    #[must_use]
    pub fn with_prompt_of(mut self, first: RequestId) -> Self {
        self.first_of_prompt = first;
        self
    }

    /// Says which of its prompt's answers it is. Each has a seed of its own, and of the prompt they would all say the
    /// same: the first does.
    #[must_use]
    pub fn as_answer(self, index: usize) -> Self {
        Self { index, ..self }
    }

    /// Whether it says how likely its prompt is.
    pub(super) fn scores_prompt(&self) -> bool {
        self.params.prompt_logprobs.is_some() && self.index == 0
    }

    /// Whether it will still say so of tokens of its prompt.
    pub(super) fn has_scores_due(&self) -> bool {
        self.scores_prompt() && self.num_prompt_logprobs + 1 < self.num_prompt_tokens
    }

    /// Says what of those that came with it comes before it.
    #[must_use]
    pub fn behind(self, ahead: Ahead) -> Self {
        Self { ahead, ..self }
    }

    /// Whether both have their prompt in common.
    pub fn shares_prompt_with(&self, other: &Self) -> bool {
        self.id != other.id && self.first_of_prompt == other.first_of_prompt
    }

    /// Tokens it can take over from a request with the same prompt: all but the last, whose logits
    /// it needs. 0 where it must compute them itself.
    pub fn num_shared_prompt_tokens(&self) -> usize {
        match self.num_prompt_tokens.saturating_sub(1) {
            shared if shared <= self.max_prefix_hit() => shared,
            _ => 0,
        }
    }

    /// Its name.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// How it draws tokens and ends.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// What the sampler must know of it in a step; `samples` where the step draws its next token.
    pub fn sampling_inputs(&self, samples: bool, max_model_len: usize) -> SamplingInputs {
        let num_output = self.output_token_ids().len() + self.num_output_placeholders;
        let edits = samples && self.params.edits_logits(num_output);
        SamplingInputs {
            params: Arc::clone(&self.params),
            seed: self.params.seed.wrapping_add(self.index as u64),
            mask: None,
            stop_ids: Arc::clone(&self.stop_ids),
            num_remaining_tokens: (self.params.max_tokens.saturating_sub(num_output))
                .min(max_model_len.saturating_sub(self.num_tokens_with_spec())),
            history: edits.then(|| SamplingHistory {
                token_ids: self.token_ids.clone(),
                num_prompt_tokens: self.num_prompt_tokens,
                held_ids: if num_output < self.params.min_tokens {
                    self.held_ids.clone()
                } else {
                    Vec::new()
                },
            }),
        }
    }

    /// Where it stands.
    pub fn status(&self) -> RequestStatus {
        self.status
    }

    /// Prompt and output ids.
    pub fn token_ids(&self) -> &[TokenId] {
        &self.token_ids
    }

    /// Most ids that may be banned from its next draw.
    pub(super) fn max_num_banned(&self) -> usize {
        let held = match self.output_token_ids().len() < self.params.min_tokens {
            true => &self.held_ids[..],
            false => &[],
        };
        let words = self.params.bad_words.iter().filter_map(|word| word.last());
        let banned: BTreeSet<_> = held.iter().chain(words).collect();
        banned.len()
    }

    /// Output ids, a stop id excluded.
    pub fn output_token_ids(&self) -> &[TokenId] {
        &self.token_ids[self.num_prompt_tokens..]
    }

    /// Length of the prompt.
    pub fn num_prompt_tokens(&self) -> usize {
        self.num_prompt_tokens
    }

    /// Tokens whose keys and values are in the cache.
    pub fn num_computed_tokens(&self) -> usize {
        self.num_computed_tokens
    }

    /// Tokens that have slots in the cache, computed or about to be by steps in flight.
    pub fn num_tokens_with_slots(&self) -> usize {
        self.num_computed_tokens + self.num_scheduled_tokens
    }

    /// Tokens it did not have to compute, because an earlier request had.
    pub fn num_cached_tokens(&self) -> usize {
        self.num_cached_tokens.unwrap_or(0)
    }

    /// Most tokens it may find in the cache instead of computing them: at least the last one is
    /// computed, for its logits, and with prompt log-probabilities all whose logits are still due.
    pub fn max_prefix_hit(&self) -> usize {
        if self.sums_all_tokens() {
            return 0;
        }
        let all = self.num_tokens_with_spec().saturating_sub(1);
        // Entry `i` comes of token `i`.
        match self.has_scores_due() {
            true => all.min(self.num_prompt_logprobs),
            false => all,
        }
    }

    /// Names of its full blocks.
    pub fn block_hashes(&self) -> &[BlockHash] {
        &self.block_hashes
    }

    /// Names those of its full blocks that have no name yet.
    pub(super) fn hash_blocks(&mut self, block_size: usize, fingerprint: &str) {
        let salt = self.params.cache_salt.as_deref();
        let named = self.block_hashes.len();
        for block in self.token_ids.chunks_exact(block_size).skip(named) {
            let before = match self.block_hashes.last() {
                Some(hash) => *hash,
                None => BlockHash::root(fingerprint, salt),
            };
            self.block_hashes.push(before.chain(block));
        }
    }

    /// Prompt and output.
    pub fn num_tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// What computing must catch up with: [`num_tokens`](Self::num_tokens), those that steps in
    /// flight draw, and drafted tokens once there are drafters.
    pub fn num_tokens_with_spec(&self) -> usize {
        self.num_tokens() + self.num_output_placeholders
    }

    /// Tokens that the next step may compute of it. None while all have slots; none behind the last
    /// token it may draw; and none where the next draw depends on tokens that are not known yet.
    pub fn num_new_tokens(&self, max_model_len: usize) -> usize {
        let drawn = self.output_token_ids().len() + self.num_output_placeholders;
        let waits = self.num_output_placeholders > 0
            && (drawn >= self.params.max_tokens
                || self.num_tokens_with_spec() >= max_model_len
                || self.params.draws_from_history());
        match waits {
            true => 0,
            false => self.num_tokens_with_spec() - self.num_tokens_with_slots(),
        }
    }

    /// Most tokens the cache will ever hold of it: the last token drawn is never computed.
    pub fn max_num_cached_tokens(&self, max_model_len: usize) -> usize {
        let end = self
            .num_prompt_tokens
            .saturating_add(self.params.max_tokens);
        match self.params.max_tokens {
            0 => self.num_prompt_tokens,
            _ => end.min(max_model_len).saturating_sub(1),
        }
    }

    /// Whether it draws a token once all its tokens are computed.
    pub fn generates(&self) -> bool {
        self.params.max_tokens > 0
    }

    /// Takes the token drawn after the last one; a stop id ends the request and is not kept.
    /// Gives the reason if the request ends here.
    pub(super) fn append_token(
        &mut self,
        id: TokenId,
        max_model_len: usize,
    ) -> Option<FinishReason> {
        if self.stop_ids.contains(&id) {
            return Some(FinishReason::Stop);
        }
        self.token_ids.push(id);
        let full = self.output_token_ids().len() >= self.params.max_tokens
            || self.num_tokens() >= max_model_len;
        full.then_some(FinishReason::Length)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
