//! A request on its way to the driver, and what its prompt is to become. Plain data.

use super::stream::Outbox;
use crate::sample::grammar::Constraint;
use crate::sched::Ahead;
use crate::types::{PoolingParams, RequestId, SamplingParams, TokenId};
use std::sync::Arc;
use std::time::Duration;

/// Tokens that an answer is counted for where those that came with it are computed one after the other. What it may
/// draw says little: clients ask for as much as the context holds and most answers end long before, and whoever stands
/// behind such as may draw much would wait on a busy server for steps that nobody takes.
const LIKELY_TOKENS: usize = 256;

/// A request on its way to the driver.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) id: RequestId,
    /// The first of those that came as one with it.
    pub(super) place: RequestId,
    /// What of them comes before it.
    pub(super) ahead: Ahead,
    /// When it came, by the engine's clock: it may wait for a step before the engine hears of it.
    pub(super) arrival: Duration,
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

    /// Steps that its sequences are counted for, beside those of a long prompt.
    pub(super) fn num_seq_steps(&self) -> usize {
        match self {
            Self::Answers(params, _) => {
                let tokens = params.max_tokens.clamp(1, LIKELY_TOKENS);
                params.n.saturating_mul(tokens)
            }
            Self::Embedding(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn num_seq_steps(n: usize, max_tokens: usize) -> usize {
        let params = SamplingParams {
            n,
            max_tokens,
            ..SamplingParams::default()
        };
        Wish::Answers(Arc::new(params), None).num_seq_steps()
    }

    /// However much a client lets its answers draw, those behind them stand so far behind and no further.
    #[test]
    fn an_answer_counts_for_what_it_may_draw_and_at_most_for_a_likely_one() {
        assert_eq!(num_seq_steps(1, 0), 1);
        assert_eq!(num_seq_steps(1, 100), 100);
        assert_eq!(num_seq_steps(3, 100), 300);
        assert_eq!(num_seq_steps(1, 131_072), 256);
        assert_eq!(num_seq_steps(2, usize::MAX), 512);
        assert_eq!(num_seq_steps(usize::MAX, usize::MAX), usize::MAX);
        assert_eq!(Wish::Embedding(PoolingParams::default()).num_seq_steps(), 1);
    }
}
