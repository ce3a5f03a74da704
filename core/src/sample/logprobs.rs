//! Log-probabilities of one row of logits.

use crate::types::{TokenId, TokenLogprobs};

/// The natural logarithm of a softmax, ready to be asked for single ids.
#[derive(Clone, Copy, Debug)]
pub struct LogSoftmax<'a> {
    logits: &'a [f32],
    log_sum_exp: f64,
}

impl<'a> LogSoftmax<'a> {
    /// Of these logits. Sums in f64, so that a large vocabulary costs no digits.
    pub fn new(logits: &'a [f32]) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits
            .iter()
            .map(|&logit| f64::from((logit - max).exp()))
            .sum();
        Self {
            logits,
            log_sum_exp: f64::from(max) + sum.ln(),
        }
    }

    /// ln p(id). NaN for an id outside the row.
    pub fn logprob(&self, id: TokenId) -> f32 {
        self.logits.get(id as usize).map_or(f32::NAN, |&logit| {
            (f64::from(logit) - self.log_sum_exp) as f32
        })
    }

    /// The `n` best ids, best first, lowest id first on a tie.
    pub fn top(&self, n: usize) -> Vec<(TokenId, f32)> {
        let n = n.min(self.logits.len());
        if n == 0 {
            return Vec::new();
        }
        let mut ids: Vec<TokenId> = (0..self.logits.len() as TokenId).collect();
        let better = |&a: &TokenId, &b: &TokenId| {
            self.logits[b as usize]
                .total_cmp(&self.logits[a as usize])
                .then(a.cmp(&b))
        };
        ids.select_nth_unstable_by(n - 1, better);
        ids.truncate(n);
        ids.sort_unstable_by(better);
        ids.into_iter().map(|id| (id, self.logprob(id))).collect()
    }

    /// The place of an id among all, from 1, in that order; behind all for one outside the row.
    pub fn rank(&self, id: TokenId) -> u32 {
        let before = match self.logits.get(id as usize) {
            Some(own) => {
                let better = self.logits.iter().filter(|&other| other > own).count();
                let ties = self.logits[..id as usize].iter();
                better + ties.filter(|&other| other == own).count()
            }
            None => self.logits.len(),
        };
        before as u32 + 1
    }
}

/// What one position reports: of the token that stands there, and the `n` best.
pub fn token_logprobs(logits: &[f32], id: TokenId, n: usize) -> TokenLogprobs {
    let softmax = LogSoftmax::new(logits);
    TokenLogprobs {
        logprob: softmax.logprob(id),
        rank: softmax.rank(id),
        top: softmax.top(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_softmax_sums_to_one_and_sorts() {
        let logits = [1.0, 3.0, -2.0, 3.0, 0.5];
        let softmax = LogSoftmax::new(&logits);
        let sum: f32 = (0..5).map(|id| softmax.logprob(id).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        let ids: Vec<u32> = softmax.top(3).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, [1, 3, 0]);
        let ranks: Vec<u32> = (0..5).map(|id| softmax.rank(id)).collect();
        assert_eq!(ranks, [3, 1, 5, 2, 4]);
        assert_eq!(softmax.top(99).len(), 5);
        assert!(softmax.logprob(5).is_nan());
        assert_eq!(softmax.rank(5), 6);
        // What a row without a number draws.
        let none = token_logprobs(&[f32::NAN; 3], TokenId::MAX, 1);
        assert!(none.logprob.is_nan() && none.rank == 4);
    }
}
