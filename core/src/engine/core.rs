//! The step loop over token ids. Knows no text, and of the model only what its runner says and how
//! far its vocabulary and context reach.

use super::awaited::Awaited;
use super::completion::Completion;
use super::constraints::Constraints;
use super::in_flight::InFlight;
use super::ledger::Ledger;
use super::metrics::{EngineGauges, EngineMetrics, KvSlotSeconds, RequestShape};
pub use super::output::EngineOutput;
use super::pooling::Pooling;
use super::recovery::Recovery;
use super::sampling_check;
use super::step_costs::StepCosts;
use crate::clock::Clock;
use crate::config::ModelConfig;
use crate::error::Result;
use crate::runner::ExecuteModel;
use crate::sample::grammar::Constraint;
use crate::sched::{
    Ahead, ConfigError, KvGroupSpec, PreemptionCost, Request, RequestError, RequestUpdate,
    Scheduler, SchedulerConfig,
};
use crate::types::{RequestId, SamplingParams, StopReason, TokenId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// An engine: a scheduler, a runner and a clock.
#[derive(Debug)]
pub struct EngineCore<R: ExecuteModel, C> {
    pub(super) scheduler: Scheduler,
    pub(super) runner: R,
    pub(super) clock: C,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) eos_token_ids: Vec<TokenId>,
    pub(super) ledger: Ledger,
    /// Requests for embeddings.
    pub(super) pooling: BTreeMap<RequestId, Pooling>,
    /// Of the scheduler's requests those that are not known by their own ids outside: further answers
    /// of another, and what was paused. Of which request, and which answer.
    pub(super) further_answers: BTreeMap<RequestId, (RequestId, usize)>,
    /// Out of the scheduler for a while.
    pub(super) paused: BTreeMap<RequestId, Request>,
    pub(super) constraints: Constraints,
    /// What steps inside [`EngineCore::generate`] brought other requests.
    pub(super) undelivered: Vec<EngineOutput>,
    pub(super) kv_slot_seconds: KvSlotSeconds,
    /// Oldest first. Dropping them gives their outputs up.
    pub(super) in_flight: VecDeque<InFlight<R::Launched>>,
    /// When the latest step was finished.
    pub(super) last_finish: Duration,
    /// What steps are predicted to take, and took.
    pub(super) step_costs: Option<StepCosts>,
    pub(super) next_id: u64,
}

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// An engine for the model that `runner` computes.
    ///
    /// # Errors
    /// [`ConfigError`] for limits under which nothing could run, or which reach beyond the model.
    pub fn new(
        runner: R,
        clock: C,
        model: &ModelConfig,
        config: SchedulerConfig,
    ) -> Result<Self, ConfigError> {
        config.validate_for(model)?;
        let groups = KvGroupSpec::of(model);
        let ledger = Ledger::new(config.max_model_len);
        let scheduler = Scheduler::new(config, groups)?;
        Ok(Self {
            scheduler: scheduler
                .with_fingerprint(runner.kv_fingerprint())
                .with_block_bytes(runner.kv_block_bytes()),
            runner,
            clock,
            vocab_size: model.vocab_size,
            hidden_size: model.hidden_size,
            eos_token_ids: model.eos_token_ids.clone(),
            ledger,
            pooling: BTreeMap::new(),
            further_answers: BTreeMap::new(),
            constraints: Constraints::default(),
            paused: BTreeMap::new(),
            undelivered: Vec::new(),
            kv_slot_seconds: KvSlotSeconds::default(),
            in_flight: VecDeque::new(),
            last_finish: Duration::ZERO,
            step_costs: None,
            next_id: 0,
        })
    }

    /// Ends requests to come at these ids too; those beyond the vocabulary are never drawn.
    pub(super) fn end_at(&mut self, ids: &[TokenId]) {
        let known = |id: &TokenId| (*id as usize) < self.vocab_size;
        self.eos_token_ids.extend(ids.iter().copied().filter(known));
        self.eos_token_ids.sort_unstable();
        self.eos_token_ids.dedup();
    }

    /// Queues a request. Its `n` answers come out under its id, told apart by their index.
    ///
    /// # Errors
    /// [`RequestError`] for ids the model does not have, parameters without meaning, forms that cannot
    /// be enforced, and requests that could never finish.
    pub fn add_request(
        &mut self,
        prompt_token_ids: Vec<TokenId>,
        params: impl Into<Arc<SamplingParams>>,
    ) -> Result<RequestId, RequestError> {
        let params = params.into();
        sampling_check::check_ids("the prompt", &prompt_token_ids, self.vocab_size)?;
        sampling_check::check(&params, self.vocab_size)?;
        let compiler = &self.constraints.compiler;
        let form = compiler.compile(&params, &self.eos_token_ids)?;
        let arrival = self.clock.now();
        self.add_checked(prompt_token_ids, params, form, Ahead::default(), arrival)
    }

    /// Queues a request that means something, with the form of its answers, behind others that came with it; and when it
    /// came, by the engine's clock.
    ///
    /// # Errors
    /// It could never finish.
    pub(super) fn add_checked(
        &mut self,
        prompt_token_ids: Vec<TokenId>,
        params: Arc<SamplingParams>,
        form: Option<Arc<Constraint>>,
        ahead: Ahead,
        arrival: Duration,
    ) -> Result<RequestId, RequestError> {
        let first = RequestId(self.next_id);
        for index in 0..params.n {
            let id = RequestId(self.next_id);
            let (ids, own) = (prompt_token_ids.clone(), Arc::clone(&params));
            let request = Request::new(id, ids, own, &self.eos_token_ids)
                .as_answer(index)
                .with_prompt_of(first)
                .behind(ahead);
            // What is said against one is said against the first.
            self.scheduler.add_request(request)?;
            self.next_id += 1;
            let shape = RequestShape {
                num_prompt_tokens: prompt_token_ids.len(),
                max_tokens: params.max_tokens,
                n: params.n,
            };
            self.ledger.open(id, arrival, shape);
            if let Some(form) = &form {
                self.constraints.keep(id, Arc::clone(form));
            }
            if index > 0 {
                self.further_answers.insert(id, (first, index));
            }
        }
        Ok(first)
    }

    /// Whether a step has anything to compute or to say.
    pub fn has_unfinished_requests(&self) -> bool {
        self.scheduler.num_unfinished_requests() > 0 || !self.undelivered.is_empty()
    }

    /// Finishes the oldest step in flight and says what it brought, after launching as many more as
    /// may be; requests of which there is nothing new to say are left out.
    ///
    /// # Errors
    /// The device's. No request is lost: the steps in flight are taken back, and the next call
    /// computes them again. So it does where the future of a call is dropped.
    pub async fn step(&mut self) -> Result<Vec<EngineOutput>> {
        let mut outputs = self.compute_step().await?;
        outputs.splice(..0, self.undelivered.drain(..));
        Ok(outputs)
    }

    /// A step, without what others brought.
    pub(super) async fn compute_step(&mut self) -> Result<Vec<EngineOutput>> {
        if self.in_flight.len() < self.scheduler.num_steps_in_flight() {
            self.give_up_steps_in_flight();
        }
        let finished = match self.launch_steps().await {
            Ok(()) => self.finish_step().await,
            Err(error) => Err(error),
        };
        if finished.is_err() || self.scheduler.num_unfinished_requests() == 0 {
            self.give_up_steps_in_flight();
        }
        let mut outputs = finished?;
        outputs.retain(EngineOutput::has_news);
        Ok(outputs)
    }

    /// Adds requests and steps until all of them are answered, in their order, `n` answers each
    /// (one where `n` itself is refused). One that is refused or fails costs the others nothing; what is
    /// brought meanwhile to requests added before comes out of the next [`step`](Self::step).
    ///
    /// # Errors
    /// The device's. The requests added here are then aborted, as they are where the future is dropped.
    pub async fn generate(
        &mut self,
        requests: Vec<(Vec<TokenId>, SamplingParams)>,
    ) -> Result<Vec<Result<Completion, RequestError>>> {
        self.generate_until(requests, &mut Recovery::none(), |_, _| None)
            .await
    }

    /// As [`generate`](Self::generate), through lost devices; an answer ends where `stop` says so of its
    /// place and what a step brought it.
    pub(super) async fn generate_until(
        &mut self,
        requests: Vec<(Vec<TokenId>, SamplingParams)>,
        recovery: &mut Recovery<R>,
        mut stop: impl FnMut(usize, &EngineOutput) -> Option<StopReason>,
    ) -> Result<Vec<Result<Completion, RequestError>>> {
        let mut answers: Vec<Result<Completion, RequestError>> = Vec::new();
        for (prompt, params) in requests {
            let n = num_answers(&params);
            let id = self.add_request(prompt.clone(), params);
            answers.extend((0..n).map(|index| {
                let id = id.clone()?;
                let metrics = self.ledger.times(id).expect("it was added just now");
                Ok(Completion::new(id, index, prompt.clone(), metrics))
            }));
        }
        let mut left = answers.iter().flatten().count();
        let mut awaited = Awaited::new(self, answers.iter().flatten().map(|c| c.request_id));
        while left > 0 {
            for mut output in awaited.step(recovery).await? {
                let its = (output.request_id, output.index);
                let is_its = |a: &Result<Completion, _>| matches!(a, Ok(c) if (c.request_id, c.index) == its);
                let place = answers.iter().position(is_its);
                let place = place.expect("an answer is given until it is over");
                if let Some(reason) = stop(place, &output) {
                    awaited.stop(its.0, its.1);
                    output.stop_at(reason);
                }
                left -= usize::from(output.finished.is_some());
                let answer = &mut answers[place];
                if let Ok(completion) = answer
                    && let Err(error) = completion.take(output)
                {
                    *answer = Err(error);
                }
            }
        }
        drop(awaited);
        Ok(answers)
    }

    /// Says what bringing back a preempted request costs, for
    /// [`PreemptionMode::Auto`](crate::sched::PreemptionMode::Auto).
    pub fn set_preemption_cost(&mut self, cost: Box<dyn PreemptionCost>) {
        self.scheduler.set_preemption_cost(cost);
    }

    /// What the KV cache held in the steps so far, and for how long.
    pub fn kv_slot_seconds(&self) -> KvSlotSeconds {
        self.kv_slot_seconds
    }

    /// What was counted and timed since the engine began.
    pub fn metrics(&self) -> &EngineMetrics {
        &self.ledger.totals
    }

    /// What it is doing now.
    pub fn gauges(&self) -> EngineGauges {
        let (scheduler, kv) = (&self.scheduler, self.scheduler.kv_cache());
        let held = kv.num_usable_blocks() - kv.num_free_blocks();
        EngineGauges {
            num_requests_running: scheduler.num_running_requests(),
            num_requests_waiting: scheduler.num_waiting_requests(),
            kv_cache_usage: held as f64 / kv.num_usable_blocks().max(1) as f64,
            cache: scheduler.cache_metrics(),
            kv_slot_seconds: self.kv_slot_seconds,
            block_size: scheduler.config().block_size,
            num_blocks: scheduler.config().num_blocks,
            last_step: self
                .step_costs
                .as_ref()
                .and_then(|costs| costs.records().last().copied()),
        }
    }

    /// The scheduler, to look at.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The runner, to look at.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// The runner.
    pub fn runner_mut(&mut self) -> &mut R {
        &mut self.runner
    }

    /// Puts another runner in the place of one whose device was lost: of the same model under the
    /// same limits. Requests keep their tokens and are computed again from them, to the same answers.
    pub fn replace_runner(&mut self, runner: R) {
        // Their outputs would be of the lost device; the tokens they were to draw are drawn again.
        self.in_flight.clear();
        self.scheduler.forget_device();
        self.runner = runner;
    }

    /// Size of the vocabulary; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    pub(super) fn record(&mut self, update: RequestUpdate) -> EngineOutput {
        let id = update.request_id;
        let embedding = self.embedding(&update);
        let metrics = self.ledger.record(&update, self.clock.now());
        let (request_id, index) = *self.further_answers.get(&id).unwrap_or(&(id, 0));
        if update.finished.is_some() {
            self.forget_answer(id);
        }
        EngineOutput {
            request_id,
            index,
            token_ids: update.token_id.into_iter().collect(),
            logprobs: update.logprobs.into_iter().collect(),
            prompt_logprobs: update.prompt_logprobs,
            embedding,
            num_cached_tokens: update.num_cached_tokens,
            finished: update.finished,
            stop_reason: update.stop_reason,
            metrics,
        }
    }
}

/// Answers that [`EngineCore::generate`] gives to a request, refused or not.
pub(super) fn num_answers(params: &SamplingParams) -> usize {
    match params.n {
        n if n <= SamplingParams::MAX_ANSWERS => n.max(1),
        _ => 1,
    }
}
