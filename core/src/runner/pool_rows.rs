//! Whose sums of final hidden states lie in which rows, and how far they reach. A share goes on from
//! the sum that ends where it begins, into the next row of a ring, so that steps in flight can be
//! computed again. Knows no model.

use crate::model::pooling::PoolBuffers;
use crate::sched::{RequestError, SchedulerOutput};
use crate::types::RequestId;
use std::collections::BTreeMap;
use std::ops::Range;
use twoclock_shaders::kernels::pool_sum::NO_ROW;

/// Sums of one sequence.
#[derive(Clone, Debug)]
struct Sums {
    place: u32,
    /// Tokens that the sum in each row covers.
    reach: Vec<Option<usize>>,
}

/// Sums of all sequences that go on.
#[derive(Debug, Default)]
pub(super) struct PoolRows {
    held: BTreeMap<RequestId, Sums>,
}

/// What of a step is pooled.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StepPools {
    /// Records of [`pool_sum`](twoclock_shaders::kernels::pool_sum).
    pub(super) records: Vec<[u32; 4]>,
    /// Sequences of the step whose sums end in it: sum `i` lies in row `i`.
    pub(super) ends: Vec<usize>,
    /// Sequences whose sum is not there to go on from.
    pub(super) failed: Vec<(usize, RequestError)>,
}

impl PoolRows {
    /// Lays the step's pooling out.
    pub(super) fn plan(&mut self, step: &SchedulerOutput, buffers: &PoolBuffers) -> StepPools {
        for id in step.finished_ids.iter().chain(&step.preempted_ids) {
            self.held.remove(id);
        }
        let mut pools = StepPools::default();
        let mut first_token = 0;
        for (sequence, share) in step.scheduled.iter().enumerate() {
            let tokens = share.num_scheduled_tokens();
            if let Some(pool) = share.pooling {
                let (id, start) = (share.request_id, share.num_computed_tokens);
                let from = match pool.begins {
                    true => Some(NO_ROW),
                    false => self.row_of(id, start, buffers),
                };
                let to = match pool.ends {
                    true => Some(pools.ends.len() as u32),
                    false => self.next_row(id, pool.begins, start..start + tokens, buffers),
                };
                let (Some(from), Some(to)) = (from, to) else {
                    let lost = RequestError::MissingOutput {
                        request_id: id,
                        position: start,
                    };
                    pools.failed.push((sequence, lost));
                    first_token += tokens;
                    continue;
                };
                let first = (first_token + pool.first) as u32;
                let count = (tokens - pool.first) as u32;
                pools.records.push([first, count, from, to]);
                if pool.ends {
                    pools.ends.push(sequence);
                }
            }
            first_token += tokens;
        }
        pools
    }

    /// Where the sum of a sequence's first `reach` tokens lies.
    fn row_of(&self, id: RequestId, reach: usize, buffers: &PoolBuffers) -> Option<u32> {
        let sums = self.held.get(&id)?;
        let row = sums.reach.iter().position(|known| *known == Some(reach))?;
        Some(buffers.kept_rows(sums.place).start + row as u32)
    }

    /// Where the sum that a share of these tokens goes on to will lie.
    fn next_row(
        &mut self,
        id: RequestId,
        begins: bool,
        tokens: Range<usize>,
        buffers: &PoolBuffers,
    ) -> Option<u32> {
        if begins {
            self.held.remove(&id);
            let taken: Vec<u32> = self.held.values().map(|sums| sums.place).collect();
            let place = (0..buffers.sequences).find(|place| !taken.contains(place))?;
            let reach = vec![None; buffers.kept_rows(place).len()];
            self.held.insert(id, Sums { place, reach });
        }
        let sums = self.held.get_mut(&id)?;
        let row = match begins {
            true => 0,
            false => {
                let from = sums.reach.iter().position(|r| *r == Some(tokens.start))?;
                (from + 1) % sums.reach.len()
            }
        };
        sums.reach[row] = Some(tokens.end);
        Some(buffers.kept_rows(sums.place).start + row as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{PoolShare, ScheduledSequence};
    use crate::types::SamplingInputs;
    use twoclock_shaders::program::{BufferId, Slice};

    fn buffers() -> PoolBuffers {
        let slice = Slice::whole(BufferId(0), 0);
        PoolBuffers {
            sequences: 3,
            kept: 5,
            pools: slice,
            sums: slice,
        }
    }

    fn share(id: u64, tokens: Range<usize>, pooling: Option<PoolShare>) -> ScheduledSequence {
        ScheduledSequence {
            request_id: RequestId(id),
            token_ids: vec![0; tokens.len()],
            num_computed_tokens: tokens.start,
            block_tables: Vec::new(),
            samples: pooling.is_none(),
            sampling: SamplingInputs::default(),
            prompt_logprob_targets: Vec::new(),
            pooling,
        }
    }

    fn step(scheduled: Vec<ScheduledSequence>) -> SchedulerOutput {
        SchedulerOutput {
            scheduled,
            ..SchedulerOutput::default()
        }
    }

    fn mean(begins: bool, ends: bool) -> Option<PoolShare> {
        Some(PoolShare {
            first: 0,
            begins,
            ends,
        })
    }

    #[test]
    fn a_sum_goes_on_where_it_ended_however_often() {
        let mut rows = PoolRows::default();
        let mut plan = |shares| rows.plan(&step(shares), &buffers());
        let last = Some(PoolShare {
            first: 2,
            begins: true,
            ends: true,
        });
        let first = plan(vec![
            share(1, 7..8, None),
            share(2, 0..5, mean(true, false)),
            share(3, 4..7, last),
        ]);
        assert_eq!(first.records, [[1, 5, NO_ROW, 3], [8, 1, NO_ROW, 0]]);
        assert_eq!(first.ends, [2]);
        let goes_on = |tokens: Range<usize>| vec![share(2, tokens, mean(false, false))];
        assert_eq!(plan(goes_on(5..8)).records, [[0, 3, 3, 4]]);
        assert_eq!(plan(goes_on(8..9)).records, [[0, 1, 4, 5]]);
        // Both steps again, the first of them cut elsewhere.
        assert_eq!(plan(goes_on(5..6)).records, [[0, 1, 3, 4]]);
        assert_eq!(plan(goes_on(6..9)).records, [[0, 3, 4, 5]]);
        let ended = plan(vec![share(2, 9..10, mean(false, true))]);
        assert_eq!((ended.records, ended.ends), (vec![[0, 1, 5, 0]], vec![0]));
        // What is not there fails alone.
        let lost = plan(vec![
            share(4, 3..5, mean(false, true)),
            share(5, 0..1, mean(true, true)),
        ]);
        assert_eq!(lost.records, [[2, 1, NO_ROW, 0]]);
        assert_eq!((lost.ends, lost.failed.len()), (vec![1], 1));
    }

    #[test]
    fn rows_of_those_who_left_are_free() {
        let mut rows = PoolRows::default();
        for id in 0..3 {
            let begun = rows.plan(&step(vec![share(id, 0..2, mean(true, false))]), &buffers());
            assert_eq!(begun.records[0][3], 3 + 5 * id as u32);
        }
        let next = SchedulerOutput {
            finished_ids: vec![RequestId(1)],
            preempted_ids: vec![RequestId(0)],
            ..step(vec![share(7, 0..2, mean(true, false))])
        };
        assert_eq!(rows.plan(&next, &buffers()).records[0][3], 3);
        let none = rows.plan(&step(vec![share(0, 2..3, mean(false, false))]), &buffers());
        assert_eq!(none.failed.len(), 1);
    }
}
