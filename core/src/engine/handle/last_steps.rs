//! The last steps of an engine, where handles read them. Owns how many are kept; knows no engine and no lock.

use crate::engine::step_costs::{StepCosts, StepRecord};
use std::collections::VecDeque;

/// The last steps, and how many there were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastSteps {
    records: VecDeque<StepRecord>,
    num_steps: u64,
}

impl LastSteps {
    /// Most that are kept.
    pub const KEPT: usize = 256;

    /// Oldest first.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &StepRecord> + DoubleEndedIterator {
        self.records.iter()
    }

    /// Steps since they are predicted by the same model, those included that are kept no longer.
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Takes over what was recorded since the last call, as far as it is kept there.
    pub(super) fn follow(&mut self, costs: &StepCosts) {
        if costs.num_recorded() < self.num_steps {
            // Others are recorded, from the first one on: those of before are not among them.
            *self = Self::default();
        }
        let new = costs.num_recorded() - self.num_steps;
        self.num_steps = costs.num_recorded();
        let records = costs.records();
        let known = records.len().saturating_sub(new as usize);
        for record in records.skip(known) {
            if self.records.len() == Self::KEPT {
                self.records.pop_front();
            }
            self.records.push_back(*record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_engine::*;
    use super::super::{EngineDriver, HandleOptions};
    use super::*;
    use crate::engine::paged_hash::model;
    use crate::sched::{CostModel, Hardware, ModelShape, SchedulerOutput};
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn cost() -> CostModel {
        let shape = ModelShape::new(&model(), 1 << 20, 2.0);
        CostModel::new(shape, Hardware::unmeasured(1 << 30))
    }

    #[test]
    fn a_handle_reads_the_last_steps_and_no_more_than_are_kept() {
        let fate = SharedFate::default();
        fate.borrow_mut().lost_at = BTreeSet::from([30]);
        let mut llm = llm(&fate);
        llm.core_mut().set_cost_model(cost(), None);
        let (mut driver, handle) = EngineDriver::new(llm, HandleOptions::default());
        assert_eq!(handle.steps(), LastSteps::default());
        let mut seen = Vec::new();
        for round in 0..16 {
            let mut streams: Vec<_> = (0..3).map(|index| submit(&handle, index)).collect();
            use_up(&mut driver, &mut streams);
            let costs = driver.engine().core().step_costs().unwrap();
            let steps = handle.steps();
            assert_eq!(steps.num_steps(), costs.num_recorded(), "round {round}");
            let kept = costs
                .records()
                .skip(costs.records().len() - steps.records().len());
            assert!(steps.records().eq(kept), "round {round}");
            seen.push(steps.num_steps());
        }
        assert!(seen.windows(2).all(|two| two[0] + 20 < two[1]), "{seen:?}");
        assert!(seen[0] < LastSteps::KEPT as u64 && seen[15] > LastSteps::KEPT as u64);
        assert_eq!(handle.steps().records().len(), LastSteps::KEPT);
        drop(driver);
        assert_eq!(handle.steps().num_steps(), seen[15]);
    }

    #[test]
    fn steps_by_another_model_are_counted_anew() {
        let mut last = LastSteps::default();
        for (num_steps, seconds) in [(5, 0.5), (2, 0.25)] {
            let mut costs = StepCosts::new(cost(), None);
            for _ in 0..num_steps {
                costs.record(&SchedulerOutput::default(), seconds, Duration::ZERO);
            }
            last.follow(&costs);
            assert_eq!(last.num_steps(), num_steps);
            assert!(last.records().eq(costs.records()));
        }
    }
}
