//! A request on its way to the driver, and what its prompt is to become. Plain data.

use super::stream::Outbox;
use crate::sample::grammar::Constraint;
use crate::sched::Ahead;
use crate::types::{PoolingParams, RequestId, SamplingParams, TokenId};
use std::sync::Arc;

/// A request on its way to the driver.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) id: RequestId,
    /// The first of those that came as one with it.
    pub(super) place: RequestId,
    /// What of them comes before it.
    pub(super) ahead: Ahead,
    pub(super) prompt_token_ids: Vec<TokenId>,
    pub(super) wish: Wish,
    pub(super) outbox: Arc<Outbox>,
}

/// What a prompt is to become.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// Answers, of a form where they have one.
    Answers(Arc<SamplingParams>, Option<Arc<Constraint>>),
    /// A vector.
    Embedding(PoolingParams),
}

impl Wish {
    /// Outputs that end.
    pub(super) fn num_answers(&self) -> usize {
        match self {
            Self::Answers(params, _) => params.n,
            Self::Embedding(_) => 1,
        }
    }

    /// Steps that its sequences take part in at most, beside those of a long prompt.
    pub(super) fn num_seq_steps(&self) -> usize {
        match self {
            Self::Answers(params, _) => params.n.saturating_mul(params.max_tokens.max(1)),
            Self::Embedding(_) => 1,
        }
    }
}
