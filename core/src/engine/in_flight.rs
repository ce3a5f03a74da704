//! Steps of an engine that are launched and not finished. Knows what they hold and how long they take,
//! not what callers are told of them.

use super::core::{EngineCore, EngineOutput};
use crate::clock::Clock;
use crate::error::Result;
use crate::runner::ExecuteModel;
use crate::sched::{KvUsage, SchedulerOutput};
use std::fmt;
use std::time::Duration;

/// A step that was launched and not finished.
pub(super) struct InFlight<L> {
    step: SchedulerOutput,
    launched: L,
    /// What the cache held with it.
    usage: KvUsage,
    /// When it was launched.
    start: Duration,
}

impl<L> fmt::Debug for InFlight<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step.fmt(f)
    }
}

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Launches steps while there is something to compute and room in flight.
    pub(super) async fn launch_steps(&mut self) -> Result<()> {
        while self.in_flight.len() <= self.scheduler.config().run_ahead {
            // Such a launch waits for most of its own step, as its logits have no room at once: what is in flight would be
            // told, and timed, that much too late.
            if !self.in_flight.is_empty() && self.scheduler.may_score_prompts() {
                break;
            }
            let start = self.clock.now();
            let mut step = self.scheduler.schedule();
            self.constraints.mask(&mut step);
            if step.is_empty() {
                break;
            }
            let launched = self.runner.launch_step(&step).await?;
            self.ledger.record_launch(&step, start);
            self.in_flight.push_back(InFlight {
                usage: self.scheduler.kv_usage(),
                step,
                launched,
                start,
            });
        }
        Ok(())
    }

    /// Waits for the oldest step in flight, where there is one.
    pub(super) async fn finish_step(&mut self) -> Result<Vec<EngineOutput>> {
        let Some(oldest) = self.in_flight.pop_front() else {
            return Ok(Vec::new());
        };
        let output = self.runner.finish_step(oldest.launched).await?;
        // A step's time begins with its launch, or with the end of the step before it.
        let now = self.clock.now();
        let start = oldest.start.max(self.last_finish);
        let took = now.saturating_sub(start);
        self.kv_slot_seconds.record(oldest.usage, took);
        self.learn(&oldest.step, took, now);
        self.ledger.record_step(&oldest.step);
        self.last_finish = now;
        let updates = self
            .scheduler
            .update_from_output(&oldest.step, output, self.vocab_size);
        Ok(updates.into_iter().map(|u| self.keep_form(u)).collect())
    }

    /// Drops the steps in flight, as if they had never been launched.
    pub(super) fn give_up_steps_in_flight(&mut self) {
        self.in_flight.clear();
        self.scheduler.retract();
    }
}
