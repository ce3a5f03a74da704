//! Who comes before whom. Knows no request but by number.

use super::config::SchedulerConfig;
use crate::types::RequestId;
use std::ops::AddAssign;

/// Steps of waiting that a level of priority is worth: a request of priority 1 stands where one of
/// priority 0 would that came so many steps later.
///
/// The place is fixed on arrival, which is the same as letting everybody grow more urgent at one rate
/// while waiting. So a request is overtaken only by those that come within so many steps a level,
/// however many come after: nothing starves.
pub const STEPS_A_PRIORITY: i64 = 1024;

/// What is computed before a request of those that came with it. It stands where it would if it had come when that
/// could be done at the earliest, as if they had been sent one after the other: so many prompts of one client, and
/// another's that comes while they are computed does not wait for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Tokens of their prompts.
    pub num_prompt_tokens: usize,
    /// Steps that their sequences are counted for, together: one for each token of a likely answer, or for a prompt
    /// alone.
    pub num_seq_steps: usize,
}

impl Ahead {
    /// The fewest steps in which it is done.
    pub(super) fn num_steps(self, config: &SchedulerConfig) -> u64 {
        let by_tokens = self.num_prompt_tokens / config.max_num_batched_tokens;
        let by_seqs = self.num_seq_steps / config.max_num_seqs;
        by_tokens.max(by_seqs) as u64
    }
}

impl AddAssign for Ahead {
    fn add_assign(&mut self, other: Self) {
        let sum = usize::saturating_add;
        self.num_prompt_tokens = sum(self.num_prompt_tokens, other.num_prompt_tokens);
        self.num_seq_steps = sum(self.num_seq_steps, other.num_seq_steps);
    }
}

/// A place in the order of requests: the lower comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    step: i64,
    /// Its first one, whatever it is called later: no two share it.
    id: RequestId,
}

impl Rank {
    /// The place of a request of a priority that comes when so many steps were scheduled.
    pub(super) fn new(step: u64, priority: i32, id: RequestId) -> Self {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        Self {
            step: step.saturating_add(STEPS_A_PRIORITY * i64::from(priority)),
            id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_model::{FakeModel, VOCAB, config, request, scheduler};
    use super::super::{Request, Scheduler, SchedulerConfig};
    use super::*;
    use crate::types::SamplingParams;

    fn add(s: &mut Scheduler, id: u64, priority: i32) {
        let plain = request(id, 30, 6);
        let params = SamplingParams {
            priority,
            ignore_eos: true,
            ..plain.params().clone()
        };
        let request = Request::new(RequestId(id), plain.token_ids().to_vec(), params, &[]);
        s.add_request(request).unwrap();
    }

    /// Ids in the order in which they ended.
    fn serve(s: &mut Scheduler, model: &mut FakeModel) -> Vec<u64> {
        let mut over = Vec::new();
        while s.num_unfinished_requests() > 0 {
            let step = s.schedule();
            let output = model.run(&step, s);
            for update in s.update_from_output(&step, output, VOCAB as usize) {
                if update.finished.is_some() {
                    over.push(update.request_id.0);
                }
            }
            s.check_integrity().unwrap();
        }
        over
    }

    #[test]
    fn lower_priorities_come_first_and_of_one_the_first_to_come() {
        let mut s = scheduler(SchedulerConfig {
            max_num_seqs: 1,
            ..config(16, 12)
        });
        for (id, priority) in [(0, 1), (1, 0), (2, 5), (3, 0), (4, -3), (5, 1)] {
            add(&mut s, id, priority);
        }
        assert_eq!(serve(&mut s, &mut FakeModel::default()), [4, 1, 3, 0, 5, 2]);
    }

    #[test]
    fn the_last_in_order_gives_way_whenever_it_came() {
        // Two of them do not fit together to their ends.
        let mut s = scheduler(config(16, 5));
        let mut model = FakeModel::default();
        add(&mut s, 0, 1);
        let step = s.schedule();
        let output = model.run(&step, &s);
        s.update_from_output(&step, output, VOCAB as usize);
        add(&mut s, 1, 0);
        let over = serve(&mut s, &mut model);
        assert_eq!(over, [1, 0]);
        assert!(s.cache_metrics().num_preemptions_recompute > 0);
    }

    #[test]
    fn a_prompt_that_comes_first_stops_nobody() {
        let mut s = scheduler(config(16, 30));
        let mut model = FakeModel::default();
        let mut step = |s: &mut Scheduler| {
            let step = s.schedule();
            let output = model.run(&step, s);
            s.update_from_output(&step, output, VOCAB as usize);
            step.scheduled
                .iter()
                .map(|share| share.request_id.0)
                .collect::<Vec<_>>()
        };
        add(&mut s, 0, 0);
        add(&mut s, 1, 0);
        for _ in 0..3 {
            step(&mut s);
        }
        let params = SamplingParams {
            priority: -1,
            ..SamplingParams::default()
        };
        let long = Request::new(RequestId(2), vec![3; 100], params, &[]);
        s.add_request(long).unwrap();
        assert_eq!(step(&mut s), [0, 1, 2]);
        for _ in 0..3 {
            assert_eq!(step(&mut s), [2, 0, 1], "all of them go on");
        }
    }

    #[test]
    fn a_level_is_worth_so_many_steps() {
        let rank = |step, priority| Rank::new(step, priority, RequestId(step));
        assert!(rank(0, 1) < rank(1025, 0));
        assert!(rank(1000, 0) < rank(0, 1));
        assert!(rank(7, 0) < rank(8, 0));
    }
    /// Whatever bounds a step: its sequences, or its tokens.
    #[test]
    fn what_came_together_counts_as_sent_one_after_the_other() {
        let config = SchedulerConfig {
            max_num_seqs: 16,
            max_num_batched_tokens: 512,
            ..config(16, 30)
        };
        let steps = |num_prompts: usize, num_prompt_tokens: usize, num_seq_steps: usize| {
            let mut ahead = Ahead::default();
            for _ in 0..num_prompts {
                ahead += Ahead {
                    num_prompt_tokens,
                    num_seq_steps,
                };
            }
            ahead.num_steps(&config)
        };
        assert_eq!(steps(0, 6, 1), 0);
        assert_eq!(steps(2048, 6, 1), 128);
        assert_eq!(steps(2048, 512, 1), 2048);
        assert_eq!(steps(1024, 6, 100), 6400);
        assert_eq!(steps(2, usize::MAX, 1), usize::MAX as u64 / 512);
    }
}
