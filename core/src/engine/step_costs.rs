//! What steps were predicted to take and what they took: keeps the last of them, lets the cost model
//! learn from each, and the scheduler hear of it. Reads no clock.

use super::core::EngineCore;
use crate::clock::Clock;
use crate::runner::ExecuteModel;
use crate::sched::{
    Bound, CostModel, RidgeBudget, SchedulerOutput, SequenceLoad, ServiceLevel, StepLoad,
};
use std::collections::VecDeque;
use std::time::Duration;

/// What the tokens of a step were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Of prompts alone.
    Prefill,
    /// One of each sequence, to draw the next.
    Decode,
    /// Of both.
    Mixed,
}

impl StepKind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Mixed => "mixed",
        }
    }
}

/// One step, predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// Tokens it computed.
    pub num_tokens: usize,
    /// Sequences they were of.
    pub num_seqs: usize,
    /// Sequences that had one token to compute and drew the next; the others were at their prompts.
    pub num_decodes: usize,
    /// Bytes it moved, by the model.
    pub bytes: f64,
    /// Operations, by the model.
    pub flops: f64,
    /// Seconds it was predicted to take.
    pub predicted: f64,
    /// Seconds it took.
    pub measured: f64,
    /// What it was predicted to wait for.
    pub bound: Bound,
    /// When it ended, by the engine's clock.
    pub ended: Duration,
}

impl StepRecord {
    /// What its tokens were.
    pub fn kind(&self) -> StepKind {
        match self.num_decodes {
            0 => StepKind::Prefill,
            n if n == self.num_seqs => StepKind::Decode,
            _ => StepKind::Mixed,
        }
    }
}

/// Steps that are kept.
const KEPT: usize = 512;
/// Steps of decodes alone, and with tokens of a prompt, that are kept beside them.
const KEPT_OF_A_KIND: usize = 33;
/// Steps of decodes alone between two times that the scheduler hears what was learnt.
const LEARNT_EVERY: u64 = 32;
/// Most tokens of the first step with tokens of a prompt beside decodes, and then twice as many as any had that was
/// timed: what more would take is known from the roof alone, which drivers and kernels may be far from.
const FIRST_MIXED: usize = 16;
/// Share of the steps with tokens of a prompt that may take longer than they are planned for.
const LATE: f64 = 0.1;

/// The cost model of an engine, and its last steps.
#[derive(Debug)]
pub struct StepCosts {
    model: CostModel,
    /// What a step's prompt tokens are measured out by; without it they are not.
    slo: Option<ServiceLevel>,
    records: VecDeque<StepRecord>,
    /// The last steps of decodes alone, and those with tokens of a prompt beside them.
    decodes: Taken,
    mixed: Taken,
    /// Most tokens that one of the latter had, of all that were.
    most_mixed: usize,
    num_recorded: u64,
}

/// Steps of one kind, and the seconds they took.
#[derive(Debug, Default)]
struct Taken(VecDeque<(StepLoad, f64)>);

impl Taken {
    fn push(&mut self, load: StepLoad, seconds: f64) {
        if self.0.len() == KEPT_OF_A_KIND {
            self.0.pop_front();
        }
        self.0.push_back((load, seconds));
    }

    /// How many times longer than the model says now they took: the quantile `q`. As predicted, as
    /// long as there is none.
    fn ratio(&self, model: &CostModel, q: f64) -> f64 {
        let ratio = |(load, took): &(StepLoad, f64)| took / model.cost(load).seconds;
        let mut ratios: Vec<f64> = self.0.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let rank = (ratios.len().saturating_sub(1) as f64 * q).round() as usize;
        ratios.get(rank).copied().unwrap_or(1.0)
    }
}

impl StepCosts {
    /// Nothing recorded yet.
    pub fn new(model: CostModel, slo: Option<ServiceLevel>) -> Self {
        Self {
            model,
            slo,
            records: VecDeque::with_capacity(KEPT),
            decodes: Taken::default(),
            mixed: Taken::default(),
            most_mixed: 0,
            num_recorded: 0,
        }
    }

    /// The model as it has learnt so far.
    pub fn model(&self) -> &CostModel {
        &self.model
    }

    /// The last steps, oldest first; at most 512.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &StepRecord> {
        self.records.iter()
    }

    /// Steps recorded since it began, those included that are kept no longer.
    pub fn num_recorded(&self) -> u64 {
        self.num_recorded
    }

    /// A budget of prompt tokens by what was learnt so far, where there is a service level.
    pub fn budget(&self, max_num_batched_tokens: usize) -> Option<RidgeBudget> {
        let slo = self.slo?;
        let mut budget = RidgeBudget::new(self.model.clone(), slo, max_num_batched_tokens);
        budget.max_mixed_tokens = FIRST_MIXED.max(self.most_mixed.saturating_mul(2));
        // Who reads compares with what a step usually takes, not with what it was predicted to; and
        // minds the slow ones. Off by more than this is another program's doing.
        let (fast, slow) = (0.05, 4.0);
        let usual = self.decodes.ratio(&self.model, 0.5);
        budget.usual_ratio = usual.clamp(fast, 1.0);
        let late = self.mixed.ratio(&self.model, 1.0 - LATE);
        budget.late_ratio = late.clamp(1.0, slow);
        Some(budget)
    }

    /// Takes in a step that took so many seconds and ended then. Gives back whether it is time to tell the scheduler: while
    /// prompts are measured out after each step, for their context grows; else from time to time.
    pub fn record(&mut self, step: &SchedulerOutput, seconds: f64, ended: Duration) -> bool {
        let shares = step.scheduled.iter().map(|share| SequenceLoad {
            num_tokens: share.num_scheduled_tokens(),
            num_computed_tokens: share.num_computed_tokens,
            samples: share.samples,
        });
        let mut load = StepLoad::of(self.model.shape(), shares);
        let scored = step
            .scheduled
            .iter()
            .map(|s| s.prompt_logprob_targets.len());
        load.num_logits_rows += scored.sum::<usize>();
        let cost = self.model.cost(&load);
        // A sequence that draws and has one token to compute decodes; the others are at their prompts.
        let decodes = step.scheduled.iter();
        let num_decodes = decodes
            .filter(|share| share.samples && share.num_scheduled_tokens() == 1)
            .count();
        if self.records.len() == KEPT {
            self.records.pop_front();
        }
        let record = StepRecord {
            num_tokens: load.num_tokens,
            num_seqs: load.num_seqs,
            num_decodes,
            bytes: cost.bytes,
            flops: cost.flops,
            predicted: cost.seconds,
            measured: seconds,
            bound: cost.bound,
            ended,
        };
        self.records.push_back(record);
        self.model.observe(&load, seconds);
        match record.kind() {
            StepKind::Decode => self.decodes.push(load, seconds),
            StepKind::Mixed => {
                self.most_mixed = self.most_mixed.max(load.num_tokens);
                self.mixed.push(load, seconds);
            }
            StepKind::Prefill => {}
        }
        self.num_recorded += 1;
        let n = self.num_recorded;
        record.kind() != StepKind::Decode || n.is_multiple_of(LEARNT_EVERY) || n.is_power_of_two()
    }
}

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Predicts steps from now on, learns from what they take, and prefers what is predicted to be
    /// cheaper where something can be done in two ways. With a service level, prompts take as many
    /// tokens a step as it leaves them ([`RidgeBudget`]; the default level lets no prompt stretch the
    /// steps of those that draw tokens to three times their usual), and goodput is measured by it.
    /// Without one they take all there is room for, which is best where nobody waits. No answer
    /// depends on it.
    pub fn set_cost_model(&mut self, model: CostModel, slo: Option<ServiceLevel>) {
        let costs = StepCosts::new(model, slo);
        if let Some(budget) = costs.budget(self.scheduler.config().max_num_batched_tokens) {
            self.scheduler.set_budget_policy(Box::new(budget));
        }
        self.step_costs = Some(costs);
        self.ledger
            .totals
            .set_service_level(slo.unwrap_or_default());
    }

    /// What steps were predicted to take, and took; `None` without a cost model.
    pub fn step_costs(&self) -> Option<&StepCosts> {
        self.step_costs.as_ref()
    }

    /// A step took so long and ended then.
    pub(super) fn learn(&mut self, step: &SchedulerOutput, took: Duration, ended: Duration) {
        let Some(costs) = &mut self.step_costs else {
            return;
        };
        if !costs.record(step, took.as_secs_f64(), ended) {
            return;
        }
        let cost = costs.model().clone();
        self.scheduler.set_preemption_cost(Box::new(cost));
        let most = self.scheduler.config().max_num_batched_tokens;
        if let Some(budget) = costs.budget(most) {
            self.scheduler.set_budget_policy(Box::new(budget));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::paged_hash::{config, engine, serve, served_alone};
    use super::*;
    use crate::sched::{
        BudgetPolicy, Hardware, KvGroupShape, ModelShape, PrefillDemand, SchedulerConfig,
    };

    /// A model that is nothing but its weights, on a device nobody has measured.
    fn model() -> CostModel {
        let shape = ModelShape {
            hidden_size: 1,
            num_attention_heads: 1,
            head_dim: 1,
            dense_params: 1_000_000_000,
            experts: None,
            head_params: 1,
            embedding_params: 0,
            bytes_per_param: 1.0,
            kv_bytes_per_layer: 1.0,
            groups: vec![KvGroupShape {
                num_layers: 1,
                window: None,
            }],
            num_dispatches: 1,
        };
        CostModel::new(shape, Hardware::unmeasured(1 << 33))
    }

    /// Nothing says yet what prompts cost beside answers: the first are read carefully, and soon as planned.
    #[test]
    fn the_first_prompts_beside_answers_are_read_in_small_pieces() {
        let slo = ServiceLevel {
            tpot: Some(1e3),
            ttft: None,
        };
        let mut costs = StepCosts::new(model(), Some(slo));
        let decode = SequenceLoad {
            num_tokens: 1,
            num_computed_tokens: 9,
            samples: true,
        };
        let demand = PrefillDemand {
            num_tokens: 5000,
            num_computed_tokens: 0,
        };
        let mut budgets = Vec::new();
        for _ in 0..8 {
            let budget = costs.budget(1000).unwrap();
            budgets.push(budget.prefill_budget(&[decode], demand));
            assert_eq!(budget.prefill_budget(&[], demand), 1000, "nobody waits");
            costs.most_mixed = *budgets.last().unwrap();
        }
        assert_eq!(budgets, [16, 32, 64, 128, 256, 512, 1000, 1000]);
    }

    #[test]
    fn an_engine_learns_what_its_steps_take_and_answers_as_before() {
        let alone = served_alone();
        for run_ahead in [0, 1] {
            let mut engine = engine(SchedulerConfig {
                run_ahead,
                max_num_batched_tokens: 64,
                ..config()
            });
            // Every step of this engine takes 10 ms.
            let slo = ServiceLevel {
                tpot: Some(0.02),
                ttft: None,
            };
            engine.set_cost_model(model(), Some(slo));
            for round in 0..3 {
                let answers = serve(&mut engine, 0..8);
                assert_eq!(answers, alone, "round {round}");
            }
            let costs = engine.step_costs().unwrap();
            let records: Vec<_> = costs.records().collect();
            assert!(records.len() > 50 && records.len() <= KEPT);
            assert!(records.iter().all(|r| r.num_tokens <= 64 && r.num_seqs > 0));
            assert!(costs.num_recorded() >= records.len() as u64);
            assert!(records.windows(2).all(|two| two[0].ended < two[1].ended));
            for r in &records {
                let expected = match r.num_decodes {
                    0 => StepKind::Prefill,
                    n if n == r.num_tokens => StepKind::Decode,
                    _ => StepKind::Mixed,
                };
                assert_eq!(r.kind(), expected, "{r:?}");
            }
            let is = |kind| records.iter().any(|r| r.kind() == kind);
            assert!(is(StepKind::Decode) && is(StepKind::Mixed));
            let prompts = StepRecord {
                num_decodes: 0,
                ..*records[0]
            };
            assert_eq!(prompts.kind(), StepKind::Prefill);
            let off = |r: &StepRecord| (r.predicted / r.measured).ln().abs();
            let last = records.len() - 20;
            let late: f64 = records[last..].iter().map(|r| off(r)).sum::<f64>() / 20.0;
            assert!(late < 0.25 && late < off(records[0]) / 4.0, "{late}");
        }
    }
}
