//! How many tokens a step may still take, of decodes and of prompts. Picks no request.

use super::config::{Batching, PrefillMode};
use super::request::Request;
use super::scheduler::Scheduler;
use super::step_load::SequenceLoad;
use super::token_budget::{BudgetPolicy, PrefillDemand};

/// Requests that wait and are looked at, to see how much there is to compute.
const LOOK_AHEAD: usize = 64;

/// What a step may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepBudget {
    /// Tokens in all.
    tokens: usize,
    /// Of those, tokens of prompts.
    prefill: usize,
    /// Tokens of one request.
    chunk: usize,
    /// Prompts are not cut.
    whole: bool,
}

/// Whether all a request needs computed is one token: the one it drew last, or what chunks left of
/// its prompt.
fn decodes(request: &Request, start: usize) -> bool {
    start > 0 && request.num_tokens_with_spec() <= start + 1
}

impl StepBudget {
    pub(super) fn is_spent(&self) -> bool {
        self.tokens == 0
    }

    /// Tokens of a request that go into the step, if it goes on at `start` with `remaining` tokens.
    pub(super) fn num_new_tokens(
        &self,
        request: &Request,
        start: usize,
        remaining: usize,
    ) -> usize {
        let prompt = !decodes(request, start);
        match (self.whole, prompt) {
            (true, _) if remaining > self.tokens => 0,
            (true, _) => remaining,
            (false, true) => remaining.min(self.chunk).min(self.tokens).min(self.prefill),
            (false, false) => remaining.min(self.chunk).min(self.tokens),
        }
    }

    /// So many tokens of a request, which goes on at `start`, are in the step.
    pub(super) fn take(&mut self, request: &Request, start: usize, num_tokens: usize) {
        self.tokens -= num_tokens;
        if !decodes(request, start) {
            self.prefill = self.prefill.saturating_sub(num_tokens);
        }
    }
}

impl Scheduler {
    /// Lets a policy say how many tokens of prompts a step takes. Without one they may be as many as
    /// the step's limits allow. No policy changes a bit of any answer.
    pub fn set_budget_policy(&mut self, policy: Box<dyn BudgetPolicy>) {
        self.budget_policy = Some(policy);
    }

    /// What the next step may take.
    pub(super) fn step_budget(&self) -> StepBudget {
        let config = &self.config;
        let tokens = config.max_num_batched_tokens;
        let prefill = match &self.budget_policy {
            // A prompt may come before others that draw tokens; it leaves each of them its own.
            None => tokens.saturating_sub(self.num_decodes()).max(1),
            Some(policy) => {
                let (decodes, demand) = self.loads();
                let room = tokens.saturating_sub(decodes.len());
                // Whatever it says, some prompt goes on.
                policy.prefill_budget(&decodes, demand).min(room).max(1)
            }
        };
        StepBudget {
            tokens,
            prefill,
            chunk: config.max_prefill_chunk.unwrap_or(usize::MAX),
            whole: config.prefill_mode != PrefillMode::Chunked,
        }
    }

    /// Whether a step that begins now lets requests in.
    pub(super) fn admits(&self) -> bool {
        self.config.batching == Batching::Continuous || self.running.is_empty()
    }

    /// Sequences that run and only want their next token.
    fn num_decodes(&self) -> usize {
        let running = self.running.iter().map(|id| &self.requests[id]);
        let decoding = running.filter(|request| {
            request.num_new_tokens(self.config.max_model_len) > 0
                && decodes(request, request.num_tokens_with_slots())
        });
        decoding.count()
    }

    /// Decodes of those that run, and what else there is to compute.
    fn loads(&self) -> (Vec<SequenceLoad>, PrefillDemand) {
        let mut loads = Vec::with_capacity(self.running.len());
        let mut demand = PrefillDemand::default();
        let room = self.config.max_num_seqs - self.running.len();
        let waiting = self.waiting.iter().take(room.min(LOOK_AHEAD));
        for id in self.running.iter().chain(waiting) {
            let request = &self.requests[id];
            let start = request.num_tokens_with_slots();
            let num_tokens = request.num_new_tokens(self.config.max_model_len);
            if num_tokens == 0 {
                continue;
            }
            if decodes(request, start) {
                loads.push(SequenceLoad {
                    num_tokens,
                    num_computed_tokens: start,
                    samples: true,
                });
            } else {
                if demand.num_tokens == 0 {
                    demand.num_computed_tokens = start;
                }
                demand.num_tokens += num_tokens;
            }
        }
        (loads, demand)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_model::{FakeModel, config, request, scheduler, step};
    use super::super::{Reservation, SchedulerConfig};
    use super::*;
    use crate::types::{RequestId, TokenId};
    use std::collections::BTreeMap;

    /// Says what it was told to, and checks what it is asked.
    #[derive(Debug)]
    struct Constant(usize);

    impl BudgetPolicy for Constant {
        fn prefill_budget(&self, decodes: &[SequenceLoad], _: PrefillDemand) -> usize {
            assert!(
                decodes
                    .iter()
                    .all(|d| d.num_tokens == 1 && d.num_computed_tokens > 0)
            );
            self.0
        }
    }

    /// Answers, and the most tokens of prompts and of one request that a step beside decodes had.
    fn serve(
        config: SchedulerConfig,
        policy: Option<usize>,
    ) -> (BTreeMap<RequestId, Vec<TokenId>>, usize) {
        let mut s = scheduler(config);
        if let Some(tokens) = policy {
            s.set_budget_policy(Box::new(Constant(tokens)));
        }
        let mut model = FakeModel::default();
        let lengths = [30, 3, 41, 17, 1, 60, 2, 25, 33];
        let (mut answers, mut most) = (BTreeMap::new(), 0);
        let mut added = 0;
        for round in 0.. {
            if round % 3 == 0 && added < lengths.len() {
                let id = added as u64;
                s.add_request(request(id, lengths[added], 12)).unwrap();
                answers.insert(RequestId(id), Vec::new());
                added += 1;
            } else if s.num_unfinished_requests() == 0 && added == lengths.len() {
                break;
            }
            let (decodes, _) = s.loads();
            let before = model.num_computed;
            for update in step(&mut s, &mut model) {
                let answer = answers.get_mut(&update.request_id).unwrap();
                answer.extend(update.token_id);
                assert!(!matches!(update.finished, Some(Err(_))));
            }
            if !decodes.is_empty() {
                most = most.max((model.num_computed - before).saturating_sub(decodes.len()));
            }
            assert!(round < 2000, "something starves");
        }
        (answers, most)
    }

    #[test]
    fn a_policy_bounds_prompts_starves_none_and_changes_no_token() {
        let plain = config(16, 40);
        let (answers, most) = serve(plain.clone(), None);
        assert!(most > 10);
        for tokens in [0, 1, 5, 1000] {
            let (limited, most) = serve(plain.clone(), Some(tokens));
            assert_eq!(limited, answers);
            assert!(most <= tokens.max(1), "{most} of {tokens}");
        }
    }

    #[test]
    fn what_came_before_gives_the_same_tokens_in_other_steps() {
        let plain = SchedulerConfig {
            max_num_batched_tokens: 200,
            ..config(16, 40)
        };
        let (answers, _) = serve(plain.clone(), None);
        for prefill_mode in [PrefillMode::Whole, PrefillMode::First] {
            for batching in [Batching::Continuous, Batching::Static] {
                for reservation in [
                    Reservation::Paged,
                    Reservation::MaxModelLen,
                    Reservation::PowerOfTwo,
                    Reservation::MaxTokens,
                ] {
                    // 15 blocks: memory runs out, or waits.
                    for num_blocks in [40, 16] {
                        let config = SchedulerConfig {
                            prefill_mode,
                            batching,
                            reservation,
                            num_blocks,
                            ..plain.clone()
                        };
                        assert_eq!(serve(config, None).0, answers);
                    }
                }
            }
        }
    }

    #[test]
    fn prompts_stay_whole_where_they_are_to() {
        let whole = SchedulerConfig {
            prefill_mode: PrefillMode::First,
            max_num_batched_tokens: 120,
            ..config(16, 40)
        };
        let mut s = scheduler(whole.clone());
        let mut model = FakeModel::default();
        s.add_request(request(0, 100, 9)).unwrap();
        step(&mut s, &mut model);
        s.add_request(request(1, 70, 9)).unwrap();
        s.add_request(request(2, 60, 9)).unwrap();
        let sizes = |s: &mut Scheduler, model: &mut FakeModel| {
            let before = model.num_computed;
            step(s, model);
            model.num_computed - before
        };
        // Both do not go into a step, and no decode goes with one.
        assert_eq!([(); 3].map(|()| sizes(&mut s, &mut model)), [70, 60, 3]);
        let chunked = SchedulerConfig {
            max_num_batched_tokens: 100,
            ..whole
        };
        assert!(chunked.validate().is_err());
    }
}
