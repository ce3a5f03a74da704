//! What passes between the scheduler and the model runner in a step, both ways: plain data. Knows
//! neither how it was decided nor how it is computed.

use super::block_pool::BlockId;
use super::error::RequestError;
use super::swap::BlockTransfer;
use crate::types::{RequestId, SamplingInputs, TokenId, TokenLogprobs};

/// Stands for a token that a step in flight draws: nobody but the device knows it yet.
pub const PLACEHOLDER_TOKEN: TokenId = TokenId::MAX;

/// One sequence's share of a step.
///
/// ```text
///  0                num_computed_tokens        num_computed_tokens + token_ids.len()
///  |--- in the cache ---|--- token_ids: computed and written now ---|--- later ---|
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledSequence {
    /// Whose.
    pub request_id: RequestId,
    /// Ids to compute, at positions `num_computed_tokens ..`; never empty. All of them are known, or
    /// there is one, the [`PLACEHOLDER_TOKEN`] for what this sequence drew last.
    pub token_ids: Vec<TokenId>,
    /// Position of the first of them; everything before it is in the cache, or will be by the steps
    /// launched before this one.
    pub num_computed_tokens: usize,
    /// The whole block table, one a KV group: position `p` lies in
    /// `block_tables[group][p / block_size]`. Long enough for every position computed now; the null
    /// block stands where the group's window lets no position computed now see anything.
    pub block_tables: Vec<Vec<BlockId>>,
    /// Draw a token from the logits of the last position computed now.
    pub samples: bool,
    /// How to draw it.
    pub sampling: SamplingInputs,
    /// Rows `0 .. len` of this share need the log-probability of the id given here: the prompt
    /// token that follows that row. Empty unless the request asked for prompt log-probabilities.
    pub prompt_logprob_targets: Vec<TokenId>,
    /// What of this share is pooled.
    pub pooling: Option<PoolShare>,
}

/// Tokens of a share whose final hidden states are summed, behind those of the shares before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShare {
    /// Index of the first of them in the share; the others follow to its end.
    pub first: usize,
    /// There is nothing before them.
    pub begins: bool,
    /// The sum is whole with them, and wanted.
    pub ends: bool,
}

impl ScheduledSequence {
    /// Tokens this sequence computes in the step.
    pub fn num_scheduled_tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// Whether its only token is the one that this sequence drew last, in a step still in flight.
    pub fn awaits_token(&self) -> bool {
        self.token_ids[..] == [PLACEHOLDER_TOKEN]
    }

    /// Sequence length once the step is done: the position of the token drawn.
    pub fn end_position(&self) -> usize {
        self.num_computed_tokens + self.token_ids.len()
    }
}

/// A page that is copied in every layer of a group before the step writes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// KV group.
    pub group: usize,
    /// From.
    pub src: BlockId,
    /// To: nothing else is copied there, and nothing from there.
    pub dst: BlockId,
}

/// What one step computes. All but the sequences is told once: by this step or, where it was taken
/// back, by a later one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerOutput {
    /// Counts steps. Their outputs come in this order; what was taken back has the same number again.
    pub number: u64,
    /// The sequences, in the order of those that run and then of those let in.
    pub scheduled: Vec<ScheduledSequence>,
    /// Pages to read out before anything is written: those of requests preempted since, whose blocks
    /// may be another's in this step already.
    pub swap_outs: Vec<BlockTransfer>,
    /// Pages to write back before anything is copied or read. The host keeps its copies.
    pub swap_ins: Vec<BlockTransfer>,
    /// Transfers to the host, by number, whose copies may go, before others are made.
    pub swap_drops: Vec<u64>,
    /// Blocks to copy first: where a sequence goes on in a block that others hold, it writes into a
    /// copy of its own.
    pub block_copies: Vec<BlockCopy>,
    /// Requests that took part in steps and ended since; whatever is kept of them may go.
    pub finished_ids: Vec<RequestId>,
    /// Requests that lost their blocks; whatever is kept of them on the device may go too, after the
    /// steps launched before this one. They come back with tokens that are all known, after a failed
    /// step perhaps in this one.
    pub preempted_ids: Vec<RequestId>,
}

impl SchedulerOutput {
    /// Tokens of the whole step.
    pub fn total_num_scheduled_tokens(&self) -> usize {
        self.scheduled
            .iter()
            .map(ScheduledSequence::num_scheduled_tokens)
            .sum()
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.scheduled.is_empty()
    }
}

/// What the runner says of one scheduled sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceOutput {
    /// Whose.
    pub request_id: RequestId,
    /// The token drawn; `Some` exactly where `samples` was set.
    pub token_id: Option<TokenId>,
    /// Its log-probabilities, where asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// One entry for each of `prompt_logprob_targets`, in that order.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The sum of final hidden states, f32 `[hidden_size]`; `Some` exactly where one ends.
    pub pooled: Option<Vec<f32>>,
    /// This sequence alone went wrong; the rest of the step stands.
    pub error: Option<RequestError>,
}

/// What the runner gives back for a step: one entry for each of [`SchedulerOutput::scheduled`], in
/// that order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRunnerOutput {
    /// The entries.
    pub sequences: Vec<SequenceOutput>,
}
