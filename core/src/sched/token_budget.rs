//! How many prompt tokens a step takes beside its decodes. Knows costs, and of requests only how
//! much they still have to compute; has no clock.

use super::cost_model::CostModel;
use super::step_load::{SequenceLoad, StepLoad};
use std::fmt;

/// What waits to be computed besides decodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillDemand {
    /// Tokens, of requests that run and of those next in line.
    pub num_tokens: usize,
    /// Tokens that the first of them has computed already.
    pub num_computed_tokens: usize,
}

/// Says how many tokens of prompts a step may compute.
pub trait BudgetPolicy: fmt::Debug {
    /// Most tokens of prompts beside these decodes. The scheduler computes at least one wherever
    /// the step's other limits allow it, so that no prompt starves.
    fn prefill_budget(&self, decodes: &[SequenceLoad], demand: PrefillDemand) -> usize;
}

/// Times a service is to keep, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceLevel {
    /// Time per output token after the first.
    pub tpot: Option<f64>,
    /// Time to the first token.
    pub ttft: Option<f64>,
}

/// The budget that the roofline gives.
///
/// Without decodes nobody waits for the step, and it may be as long as it can. With a TPOT to keep it
/// is the largest budget whose step is predicted to keep it: the more prompt tokens a step takes, the
/// sooner first tokens come. Without one it is as many tokens as are free, or more if the step
/// stays under [`stretch`](Self::stretch) times the decodes' own, or as many as bring the prompts
/// that wait to their first tokens in time.
#[derive(Clone, Debug)]
pub struct RidgeBudget {
    /// What steps cost.
    pub model: CostModel,
    /// What to keep.
    pub slo: ServiceLevel,
    /// Fewest tokens where a TPOT cannot be kept, whatever they cost.
    pub min_tokens: usize,
    /// Most tokens.
    pub max_tokens: usize,
    /// Most beside decodes, if fewer.
    pub max_mixed_tokens: usize,
    /// Without a TPOT to keep, how many times longer a prompt may make a step.
    pub stretch: f64,
    /// How much longer steps of decodes alone take than the model says: it has one bandwidth for them
    /// and for steps with a few tokens of a prompt, and who reads compares with the former.
    pub usual_ratio: f64,
    /// How much longer than the model says the slow ones of steps with tokens of a prompt take; a step
    /// is planned as if it were one.
    pub late_ratio: f64,
}

/// Share of a TPOT that a step is planned for: predictions are not exact.
const PLANNED: f64 = 0.95;

impl RidgeBudget {
    /// A policy under these limits, with a stretch that keeps the 95th percentile of times between
    /// tokens under three times the usual.
    pub fn new(model: CostModel, slo: ServiceLevel, max_tokens: usize) -> Self {
        Self {
            model,
            slo,
            min_tokens: 32.min(max_tokens),
            max_tokens,
            max_mixed_tokens: usize::MAX,
            stretch: 2.5,
            usual_ratio: 1.0,
            late_ratio: 1.0,
        }
    }
}

impl BudgetPolicy for RidgeBudget {
    fn prefill_budget(&self, decodes: &[SequenceLoad], demand: PrefillDemand) -> usize {
        if decodes.is_empty() {
            return self.max_tokens;
        }
        let load = StepLoad::of(self.model.shape(), decodes.iter().copied());
        let before = demand.num_computed_tokens;
        let most = self.max_tokens.min(self.max_mixed_tokens);
        let within = |seconds| self.model.tokens_within(&load, before, seconds, most);
        let budget = match self.slo {
            ServiceLevel {
                tpot: Some(tpot), ..
            } => within(tpot * PLANNED),
            ServiceLevel { ttft, .. } => {
                let usual = self.model.cost(&load).seconds * self.usual_ratio;
                let free = self.model.free_tokens(&load, before, most);
                let unhurried = free.max(within(usual * self.stretch / self.late_ratio));
                match ttft {
                    Some(ttft) => self.in_time(&load, demand, ttft).max(unhurried),
                    None => unhurried,
                }
            }
        };
        // Where no TPOT is promised that could be out of reach, the stretch alone says how few will do,
        // down to what a prompt takes in any case.
        let least = match self.slo.tpot {
            Some(_) => self.min_tokens,
            None => self.model.tokens_with_one(&load, before, most),
        };
        budget.clamp(least.min(most), most)
    }
}

impl RidgeBudget {
    /// Fewest tokens a step, by doubling, with which all that waits is computed within `ttft`.
    fn in_time(&self, load: &StepLoad, demand: PrefillDemand, ttft: f64) -> usize {
        let mut budget = self.min_tokens.max(1);
        while budget < self.max_tokens {
            let mut step = *load;
            let chunk = SequenceLoad {
                num_tokens: budget,
                num_computed_tokens: demand.num_computed_tokens,
                samples: true,
            };
            step.add(self.model.shape(), chunk);
            let steps = demand.num_tokens.div_ceil(budget);
            if steps as f64 * self.model.cost(&step).seconds <= ttft {
                break;
            }
            budget *= 2;
        }
        budget.min(self.max_tokens)
    }
}
