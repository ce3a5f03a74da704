//! What each step computes. Decides by counters and blocks alone: knows no device, no clock and
//! no text.

use super::beginning::Beginning;
use super::config::{ConfigError, PrefillMode, SchedulerConfig};
use super::error::RequestError;
use super::handed_out::HandedOut;
use super::kv_cache_manager::KvCacheManager;
use super::kv_group::KvGroupSpec;
use super::metrics::CacheMetrics;
use super::output::{ScheduledSequence, SchedulerOutput};
use super::rank::Rank;
use super::request::{Request, RequestStatus};
use super::reservation::Reservations;
use super::step_budget::StepBudget;
use super::swap::{PreemptionCost, SwapSpace};
use super::token_budget::BudgetPolicy;
use crate::types::RequestId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The scheduler.
///
/// One rule: bring every request's `num_computed_tokens` to its `num_tokens_with_spec`, running
/// requests first, under the step's budgets. `running` and `waiting` are each in the order of arrival,
/// where a level of priority counts as so many steps ([`STEPS_A_PRIORITY`]). When blocks run out the
/// last of those that run gives up its own and starts again from position 0 later. So the first that
/// runs always advances, the first that waits is the next to be let in, and none starves.
///
/// [`STEPS_A_PRIORITY`]: super::rank::STEPS_A_PRIORITY
///
/// A prompt of 40 tokens under a budget of 32 takes two steps, the second of which draws a token:
///
/// ```
/// use twoclock_core::sched::{
///     KvGroupSpec, ModelRunnerOutput, Request, Scheduler, SchedulerConfig, SequenceOutput,
/// };
/// use twoclock_core::types::{RequestId, SamplingParams};
///
/// let config = SchedulerConfig { max_num_batched_tokens: 32, ..SchedulerConfig::default() };
/// let mut scheduler = Scheduler::new(config, KvGroupSpec::full_attention(30))?;
/// let params = SamplingParams { max_tokens: 1, ..SamplingParams::default() };
/// scheduler.add_request(Request::new(RequestId(0), vec![7; 40], params, &[2]))?;
///
/// for (start, end, drawn) in [(0, 32, None), (32, 40, Some(9))] {
///     let step = scheduler.schedule();
///     let share = &step.scheduled[0];
///     assert_eq!((share.num_computed_tokens, share.end_position()), (start, end));
///     assert_eq!(share.samples, drawn.is_some());
///     // A model runner computes the step; this one would always draw 9.
///     let output = SequenceOutput {
///         request_id: share.request_id,
///         token_id: drawn,
///         logprobs: None,
///         prompt_logprobs: Vec::new(),
///         pooled: None,
///         error: None,
///     };
///     let output = ModelRunnerOutput { sequences: vec![output] };
///     let update = scheduler.update_from_output(&step, output, 100).remove(0);
///     assert_eq!(update.token_id, drawn);
/// }
/// assert_eq!(scheduler.num_unfinished_requests(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: SchedulerConfig,
    pub(super) kv: KvCacheManager,
    pub(super) swap: SwapSpace,
    pub(super) requests: BTreeMap<RequestId, Request>,
    pub(super) running: Vec<RequestId>,
    pub(super) waiting: VecDeque<RequestId>,
    /// What the runner is to hear of.
    pub(super) finished_ids: HandedOut<RequestId>,
    pub(super) preempted_ids: HandedOut<RequestId>,
    /// Numbers of the steps in flight.
    pub(super) in_flight: Range<u64>,
    pub(super) metrics: CacheMetrics,
    pub(super) budget_policy: Option<Box<dyn BudgetPolicy>>,
    pub(super) reservations: Reservations,
}

impl Scheduler {
    /// A scheduler without requests.
    ///
    /// # Errors
    /// [`ConfigError`] for limits under which nothing could run.
    pub fn new(config: SchedulerConfig, groups: Vec<KvGroupSpec>) -> Result<Self, ConfigError> {
        config.validate()?;
        if groups.is_empty() {
            return Err(ConfigError::Zero {
                name: "the number of KV groups",
            });
        }
        let kv = KvCacheManager::new(groups, &config);
        let num_slots = (config.num_blocks - 1) * config.block_size;
        Ok(Self {
            kv,
            reservations: Reservations::new(config.reservation, num_slots),
            budget_policy: None,
            swap: SwapSpace::new(&config),
            config,
            requests: BTreeMap::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            finished_ids: HandedOut::default(),
            preempted_ids: HandedOut::default(),
            in_flight: 0..0,
            metrics: CacheMetrics::default(),
        })
    }

    /// Says what besides tokens and salt decides the content of a block: model, adapter, type of
    /// the cache, numerics class.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: String) -> Self {
        self.kv.set_fingerprint(fingerprint);
        self
    }

    /// Says how many bytes a block takes in all layers of each group. Without it no page is swapped.
    #[must_use]
    pub fn with_block_bytes(mut self, block_bytes: Vec<u64>) -> Self {
        self.swap.set_block_bytes(block_bytes);
        self
    }

    /// Says what bringing back a preempted request costs, for [`PreemptionMode::Auto`].
    ///
    /// [`PreemptionMode::Auto`]: super::config::PreemptionMode::Auto
    pub fn set_preemption_cost(&mut self, cost: Box<dyn PreemptionCost>) {
        self.swap.set_cost(cost);
    }

    /// Bytes of preempted requests in host memory.
    pub fn num_swapped_bytes(&self) -> u64 {
        self.swap.bytes()
    }

    /// What the cache was good for so far.
    pub fn cache_metrics(&self) -> CacheMetrics {
        self.metrics
    }

    /// No request finds what others computed before, and the counts of the cache begin anew. What runs keeps its
    /// blocks.
    pub fn reset_prefix_cache(&mut self) {
        self.kv.evict_all();
        self.metrics = CacheMetrics::default();
    }

    /// The limits.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The block tables.
    pub fn kv_cache(&self) -> &KvCacheManager {
        &self.kv
    }

    /// A request that is not over.
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        self.requests.get(&id)
    }

    /// Requests that are not over.
    pub fn num_unfinished_requests(&self) -> usize {
        self.requests.len()
    }

    /// Those of them that take part in steps.
    pub fn num_running_requests(&self) -> usize {
        self.running.len()
    }

    /// Whether the next step may score tokens of a prompt.
    pub fn may_score_prompts(&self) -> bool {
        let free = self.config.max_num_seqs.saturating_sub(self.running.len());
        let next = self.running.iter().chain(self.waiting.iter().take(free));
        next.map(|id| &self.requests[id])
            .any(Request::has_scores_due)
    }

    /// Requests that wait to be let in, for the first time or again.
    pub fn num_waiting_requests(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a request, whose id must be larger than every earlier one. Its place is that of its arrival,
    /// [behind](Request::behind) what came with it, or the one it had before it was [renewed](Request::renewed).
    ///
    /// # Errors
    /// [`RequestError::EmptyPrompt`], [`RequestError::PromptTooLong`] and
    /// [`RequestError::NeverFits`] for a request that could never finish.
    pub fn add_request(&mut self, mut request: Request) -> Result<(), RequestError> {
        let num_prompt_tokens = request.num_prompt_tokens();
        let max_model_len = self.config.max_model_len;
        if num_prompt_tokens == 0 {
            return Err(RequestError::EmptyPrompt);
        }
        let room = usize::from(request.generates());
        if num_prompt_tokens > max_model_len - room {
            return Err(RequestError::PromptTooLong {
                num_prompt_tokens,
                room,
                max_model_len,
            });
        }
        let num_tokens = request.max_num_cached_tokens(max_model_len);
        if let Some((needed, available)) = self.kv.never_fits(num_tokens) {
            return Err(RequestError::NeverFits {
                num_tokens,
                needed,
                block_size: self.config.block_size,
                available,
            });
        }
        if let Some((slots, most)) = self.reservations.never_fits(&request, max_model_len) {
            return Err(RequestError::NeverFits {
                num_tokens: slots,
                needed: self.config.blocks_for(slots),
                block_size: self.config.block_size,
                available: most / self.config.block_size,
            });
        }
        self.kv.hash_blocks(&mut request);
        let id = request.id();
        let later = request.ahead.num_steps(&self.config);
        let step = self.in_flight.end.saturating_add(later);
        let newcomer = Rank::new(step, request.params().priority, id);
        request.rank.get_or_insert(newcomer);
        let before = self.requests.insert(id, request);
        assert!(before.is_none(), "{id} is in use");
        self.wait(id);
        Ok(())
    }

    /// Puts a request in its place among those that wait.
    pub(super) fn wait(&mut self, id: RequestId) {
        let rank = self.requests[&id].rank;
        let place = self
            .waiting
            .partition_point(|w| self.requests[w].rank < rank);
        self.waiting.insert(place, id);
    }

    /// Puts a request in its place among those that run.
    pub(super) fn run(&mut self, id: RequestId) {
        let rank = self.requests[&id].rank;
        let place = self
            .running
            .partition_point(|r| self.requests[r].rank < rank);
        self.running.insert(place, id);
    }

    /// Ends a request at once, whatever it is doing, and gives it back; `None` if it is over
    /// already or never was.
    pub fn abort(&mut self, id: RequestId) -> Option<Request> {
        self.remove(id)
    }

    /// Steps whose output did not come yet.
    pub fn num_steps_in_flight(&self) -> usize {
        (self.in_flight.end - self.in_flight.start) as usize
    }

    /// Decides the next step; one without sequences is none, and nothing comes of it. Steps may be
    /// scheduled before the output of those before them came: they must be computed in this order,
    /// and their outputs taken in, in this order, by
    /// [`update_from_output`](Self::update_from_output). Where one fails,
    /// [`retract`](Self::retract) takes all of them back.
    pub fn schedule(&mut self) -> SchedulerOutput {
        let mut budget = self.step_budget();
        let mut scheduled = Vec::new();
        let admits = self.admits();
        if self.config.prefill_mode == PrefillMode::First {
            self.admit_waiting(&mut budget, &mut scheduled);
        }
        if self.config.prefill_mode != PrefillMode::First || scheduled.is_empty() {
            let blocks_ran_out = self.go_on_running(&mut budget, &mut scheduled);
            // After a preemption the free blocks are what an older request will want next.
            if admits && !blocks_ran_out {
                self.admit_waiting(&mut budget, &mut scheduled);
            }
        }

        if scheduled.is_empty() {
            return SchedulerOutput::default();
        }
        let number = self.in_flight.end;
        self.in_flight.end += 1;
        let transfers = self.swap.hand_out(number);
        SchedulerOutput {
            number,
            scheduled,
            swap_outs: transfers.outs,
            swap_ins: transfers.ins,
            swap_drops: transfers.drops,
            block_copies: self.kv.hand_out_copies(number),
            finished_ids: self.finished_ids.hand_out(number),
            preempted_ids: self.preempted_ids.hand_out(number),
        }
    }

    /// Schedules those that run, first to last. Gives back whether blocks ran out.
    fn go_on_running(
        &mut self,
        budget: &mut StepBudget,
        scheduled: &mut Vec<ScheduledSequence>,
    ) -> bool {
        let mut blocks_ran_out = false;
        let mut index = 0;
        while index < self.running.len() && !budget.is_spent() {
            let id = self.running[index];
            if self.requests[&id].awaits_prompt {
                match self.beginning(id) {
                    Beginning::Awaited => {
                        index += 1;
                        continue;
                    }
                    Beginning::Found(found) => self.begin(id, found),
                }
            }
            let request = &self.requests[&id];
            let start = request.num_tokens_with_slots();
            let remaining = request.num_new_tokens(self.config.max_model_len);
            let num_new = budget.num_new_tokens(request, start, remaining);
            if num_new == 0 {
                // Steps in flight compute it all, or know what the next one must be told; or the
                // step takes no more of prompts.
                index += 1;
                continue;
            }
            let mut end = start + num_new;
            let mut fits = self.kv.allocate_slots(id, start..end);
            while !fits {
                blocks_ran_out = true;
                if self.running.len() == 1 && self.num_steps_in_flight() > 0 {
                    // It alone holds blocks, and some of them only until those steps are done.
                    break;
                }
                if self.running.len() == 1 {
                    // What is let in fits token by token, but perhaps not a chunk and its window.
                    end = end.min(self.kv.max_num_tokens(id, start));
                    fits = end > start && self.kv.allocate_slots(id, start..end);
                    assert!(fits, "one token of what fits alone does not fit");
                    break;
                }
                // Those behind `index` are not scheduled yet, so nothing has to be taken back.
                let newest = self
                    .running
                    .pop()
                    .expect("at least this request is running");
                self.preempt(newest);
                if newest == id {
                    break;
                }
                fits = self.kv.allocate_slots(id, start..end);
            }
            if fits {
                budget.take(&self.requests[&id], start, end - start);
                scheduled.push(self.share(id, end - start));
            }
            if self.running.get(index) == Some(&id) {
                index += 1;
            }
        }
        blocks_ran_out
    }

    /// Its blocks are free at once, although steps in flight may still write into them, of a request
    /// that ends at a stop id always one beyond its end. What writes for their next holder, and what
    /// moves pages for it, is queued behind those steps, so all that it reads of its blocks it wrote
    /// itself. Nobody finds them by name: only what is confirmed has one, and those steps write
    /// behind that.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let mut request = self.requests.remove(&id)?;
        let swapped = self.swap.forget(id);
        if request.status == RequestStatus::Running || swapped {
            self.finished_ids.push(id);
        }
        request.status = RequestStatus::Finished;
        self.kv.free(id);
        self.reservations.release(id);
        self.running.retain(|r| *r != id);
        self.waiting.retain(|r| *r != id);
        Some(request)
    }
}
