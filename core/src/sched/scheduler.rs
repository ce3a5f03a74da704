//! What each step computes. Decides by counters and blocks alone: knows no device, no clock and
//! no text.

use super::block_pool::BlockId;
use super::computed_blocks::ComputedBlocks;
use super::config::{ConfigError, SchedulerConfig};
use super::error::RequestError;
use super::kv_cache_manager::KvCacheManager;
use super::kv_group::KvGroupSpec;
use super::metrics::{CacheMetrics, KvUsage};
use super::output::{ModelRunnerOutput, ScheduledSequence, SchedulerOutput, SequenceOutput};
use super::request::{Request, RequestStatus};
use super::swap::{PreemptionCost, SwapSpace};
use crate::types::{FinishReason, RequestId, TokenId, TokenLogprobs};
use std::collections::{BTreeMap, VecDeque};

/// What a step brought one request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestUpdate {
    /// Which.
    pub request_id: RequestId,
    /// The token it gained; `None` while its prompt is computed, and for a stop id.
    pub token_id: Option<TokenId>,
    /// Log-probabilities of that token, where asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// Log-probabilities of the next prompt tokens, where asked for, in order from the second.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Tokens it did not have to compute, because an earlier request had.
    pub num_cached_tokens: usize,
    /// The request is over: ended, or failed by itself.
    pub finished: Option<Result<FinishReason, RequestError>>,
}

/// What a request that holds nothing can begin with.
enum Beginning {
    /// These blocks, perhaps none.
    Found(ComputedBlocks),
    /// More, once another request has computed the prompt they share.
    Awaited,
}

/// The scheduler.
///
/// One rule: bring every request's `num_computed_tokens` to its `num_tokens_with_spec`, running
/// requests first, oldest first, under the step's budgets. When blocks run out the newest running
/// request gives up its own and starts again from position 0 later. `running` followed by `waiting`
/// is always in order of arrival, so the oldest request always advances and none starves.
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
    config: SchedulerConfig,
    kv: KvCacheManager,
    swap: SwapSpace,
    requests: BTreeMap<RequestId, Request>,
    running: Vec<RequestId>,
    waiting: VecDeque<RequestId>,
    /// What the runner has not heard of yet, as no step was computed since.
    finished_ids: Vec<RequestId>,
    preempted_ids: Vec<RequestId>,
    metrics: CacheMetrics,
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
        Ok(Self {
            kv: KvCacheManager::new(groups, &config),
            swap: SwapSpace::new(&config),
            config,
            requests: BTreeMap::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            finished_ids: Vec::new(),
            preempted_ids: Vec::new(),
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

    /// How full the cache is.
    pub fn kv_usage(&self) -> KvUsage {
        let block_size = self.config.block_size;
        let unused = self.running.iter().map(|id| {
            let tables = self.kv.block_tables(*id);
            let slots = |table: &Vec<BlockId>| table.len() * block_size;
            let with_slots = self.requests[id].num_tokens_with_slots();
            tables
                .iter()
                .map(|table| slots(table) - with_slots)
                .sum::<usize>()
        });
        KvUsage {
            unused_slots: unused.sum(),
            allocated_slots: block_size * (self.kv.num_usable_blocks() - self.kv.num_free_blocks()),
        }
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

    /// Queues a request, whose id must be larger than every earlier one.
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
        self.kv.hash_blocks(&mut request);
        let id = request.id();
        let before = self.requests.insert(id, request);
        assert!(before.is_none(), "{id} is in use");
        self.waiting.push_back(id);
        Ok(())
    }

    /// Ends a request at once, whatever it is doing, and gives it back; `None` if it is over
    /// already or never was.
    pub fn abort(&mut self, id: RequestId) -> Option<Request> {
        self.remove(id)
    }

    /// Nothing written to the device is there any more, nor what the runner had on the host: every
    /// request is computed again from its tokens, and nothing is found that was computed before.
    pub fn forget_device(&mut self) {
        for id in std::mem::take(&mut self.running).into_iter().rev() {
            self.kv.free(id);
            self.wait_again(id);
        }
        self.kv.evict_all();
        self.swap.forget_all();
    }

    /// Decides the next step. What it schedules counts as computed only with
    /// [`update_from_output`](Self::update_from_output); a step that failed is scheduled again.
    pub fn schedule(&mut self) -> SchedulerOutput {
        let mut token_budget = self.config.max_num_batched_tokens;
        let mut scheduled = Vec::new();
        let mut blocks_ran_out = false;

        let mut index = 0;
        while index < self.running.len() && token_budget > 0 {
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
            let start = request.num_computed_tokens;
            let mut end = start + self.num_new_tokens(request, token_budget);
            let mut fits = self.kv.allocate_slots(id, start..end);
            while !fits {
                blocks_ran_out = true;
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
                scheduled.push(self.share(id, end - start));
                token_budget -= end - start;
                index += 1;
            }
        }

        // After a preemption the free blocks are what an older request will want next.
        while !blocks_ran_out
            && token_budget > 0
            && self.running.len() < self.config.max_num_seqs
            && let Some(&id) = self.waiting.front()
        {
            let swapped = self.swap.num_tokens(id);
            let mut found = match self.beginning(id) {
                Beginning::Found(found) => found,
                Beginning::Awaited if swapped.is_some() => {
                    self.kv.get_computed_blocks(&self.requests[&id])
                }
                Beginning::Awaited => {
                    let request = self.requests.get_mut(&id).expect("queued requests exist");
                    request.awaits_prompt = true;
                    request.status = RequestStatus::Running;
                    self.waiting.pop_front();
                    self.running.push(id);
                    continue;
                }
            };
            // All of it must fit now, although only a chunk is computed: else two long prompts
            // would take turns at throwing each other out.
            let num_tokens = self.requests[&id].num_tokens_with_spec();
            // Less than a block is sooner computed than brought back.
            let swapped =
                swapped.filter(|n| *n >= found.num_cached_tokens + self.config.block_size);
            if let Some(start) = swapped {
                found = self.kv.get_computed_blocks(&self.requests[&id]);
                self.kv.trim(&mut found, start);
            }
            if !self.kv.has_room_for(num_tokens, &found) {
                break;
            }
            let start = swapped.unwrap_or(found.num_cached_tokens);
            self.begin(id, found);
            let moved = match swapped {
                Some(_) => self.kv.restore(id, start),
                None => Vec::new(),
            };
            self.swap.swap_in(id, moved);
            let request = self.requests.get_mut(&id).expect("queued requests exist");
            request.num_computed_tokens = start;
            let num_new = self.num_new_tokens(&self.requests[&id], token_budget);
            let end = (start + num_new).min(self.kv.max_num_tokens(id, start));
            let fits = end > start && self.kv.allocate_slots(id, start..end);
            assert!(fits, "a part of what fits does not fit");
            self.waiting.pop_front();
            self.running.push(id);
            scheduled.push(self.share(id, end - start));
            token_budget -= end - start;
        }

        let (swap_outs, swap_ins) = self.swap.transfers();
        SchedulerOutput {
            scheduled,
            swap_outs,
            swap_ins,
            block_copies: self.kv.copies().to_vec(),
            finished_ids: self.finished_ids.clone(),
            preempted_ids: self.preempted_ids.clone(),
        }
    }

    /// Takes in what a step computed: advances counters, appends tokens, ends requests and frees
    /// their blocks. Requests aborted since the step was scheduled are passed over.
    ///
    /// `vocab_size` bounds the ids a model may draw.
    pub fn update_from_output(
        &mut self,
        step: &SchedulerOutput,
        output: ModelRunnerOutput,
        vocab_size: usize,
    ) -> Vec<RequestUpdate> {
        self.finished_ids
            .retain(|id| !step.finished_ids.contains(id));
        self.preempted_ids
            .retain(|id| !step.preempted_ids.contains(id));
        self.metrics.num_copied_blocks += step.block_copies.len() as u64;
        self.kv.copied(&step.block_copies);
        self.swap.moved(&step.swap_outs, &step.swap_ins);
        let mut outputs = output.sequences.into_iter();
        let mut updates = Vec::with_capacity(step.scheduled.len());
        for share in &step.scheduled {
            let output = outputs.next().filter(|o| o.request_id == share.request_id);
            let Some(request) = self.requests.get_mut(&share.request_id) else {
                continue;
            };
            let max_model_len = self.config.max_model_len;
            let update = advance(request, share, output, vocab_size, max_model_len);
            match update.finished {
                // Perhaps of a kind that would spoil what others find.
                Some(Err(_)) => self.kv.evict(share.request_id),
                _ => self.kv.cache_blocks(request),
            }
            let num_computed_tokens = request.num_computed_tokens;
            if update.finished.is_some() {
                self.remove(share.request_id);
            } else {
                self.kv.free_unseen(share.request_id, num_computed_tokens);
            }
            updates.push(update);
        }
        updates
    }

    /// Checks everything that must hold at any moment.
    ///
    /// # Errors
    /// A sentence naming the first contradiction.
    pub fn check_integrity(&self) -> Result<(), String> {
        let sequences = self.running.iter().map(|id| {
            let request = &self.requests[id];
            let next = request.num_computed_tokens;
            (*id, next..request.num_tokens_with_slots())
        });
        self.kv.check_integrity(&sequences.collect())?;
        self.swap.check_integrity(|id| self.running.contains(&id))?;
        let order: Vec<_> = self.running.iter().chain(&self.waiting).collect();
        if !order.is_sorted() {
            return Err(format!("requests are out of order of arrival: {order:?}"));
        }
        if order.len() != self.requests.len() || order.windows(2).any(|w| w[0] == w[1]) {
            return Err(format!(
                "{} requests, but {order:?} in the queues",
                self.requests.len()
            ));
        }
        if self.running.len() > self.config.max_num_seqs {
            return Err(format!("{} requests are running", self.running.len()));
        }
        for (id, request) in &self.requests {
            let running = self.running.contains(id);
            if running != (request.status == RequestStatus::Running) {
                return Err(format!(
                    "{id} is in the wrong queue for {:?}",
                    request.status
                ));
            }
            if request.awaits_prompt && !(running && self.kv.block_tables(*id).is_empty()) {
                return Err(format!(
                    "{id} awaits a prompt, but holds blocks or does not run"
                ));
            }
            if !running && request.num_tokens_with_slots() != 0 {
                return Err(format!("{id} counts computed tokens, but holds no blocks"));
            }
        }
        Ok(())
    }

    /// What a request that holds nothing can begin with.
    fn beginning(&self, id: RequestId) -> Beginning {
        let request = &self.requests[&id];
        let found = self.kv.get_computed_blocks(request);
        let shared = request.num_shared_prompt_tokens();
        if shared <= found.num_cached_tokens {
            return Beginning::Found(found);
        }
        let running = self.running.iter().map(|id| &self.requests[id]);
        let siblings = running.filter(|r| r.shares_prompt_with(request) && !r.awaits_prompt);
        let mut awaited = false;
        for sibling in siblings {
            if sibling.num_computed_tokens < shared {
                awaited = true;
            } else if let Some(blocks) = self.kv.shared_blocks(sibling.id(), shared) {
                return Beginning::Found(blocks);
            }
        }
        match awaited {
            true => Beginning::Awaited,
            false => Beginning::Found(found),
        }
    }

    /// Lets a request begin with the blocks found for it.
    fn begin(&mut self, id: RequestId, found: ComputedBlocks) {
        let request = self.requests.get_mut(&id).expect("queued requests exist");
        request.num_computed_tokens = found.num_cached_tokens;
        if request.num_cached_tokens.is_none() {
            request.num_cached_tokens = Some(found.num_cached_tokens);
            self.metrics.prefix_cache_queries += request.num_tokens() as u64;
            self.metrics.prefix_cache_hits += found.num_cached_tokens as u64;
        }
        request.awaits_prompt = false;
        request.status = RequestStatus::Running;
        self.kv.share(id, found);
    }

    fn num_new_tokens(&self, request: &Request, token_budget: usize) -> usize {
        (request.num_tokens_with_spec() - request.num_computed_tokens)
            .min(self.config.max_prefill_chunk.unwrap_or(usize::MAX))
            .min(token_budget)
    }

    fn share(&mut self, id: RequestId, num_new: usize) -> ScheduledSequence {
        let request = self
            .requests
            .get_mut(&id)
            .expect("scheduled requests exist");
        request.num_scheduled_tokens = num_new;
        let params = request.params();
        let (start, end) = (
            request.num_computed_tokens,
            request.num_computed_tokens + num_new,
        );
        let samples = end == request.num_tokens() && request.generates();
        let prompt = &request.token_ids()[..request.num_prompt_tokens()];
        let targets = prompt.get(start + 1..(end + 1).min(prompt.len()));
        ScheduledSequence {
            request_id: id,
            token_ids: request.token_ids()[start..end].to_vec(),
            num_computed_tokens: start,
            block_tables: self.kv.block_tables(id).to_vec(),
            samples,
            sampling: request.sampling_inputs(samples),
            prompt_logprob_targets: match targets {
                Some(ids) if params.prompt_logprobs => ids.to_vec(),
                _ => Vec::new(),
            },
        }
    }

    /// The request has left `running` already; it was the newest there, so it is now the oldest of
    /// those that wait.
    fn preempt(&mut self, id: RequestId) {
        let blocks = self.kv.held_blocks(id);
        match self.swap.swap_out(&self.requests[&id], blocks) {
            true => self.metrics.num_preemptions_swap += 1,
            false => self.metrics.num_preemptions_recompute += 1,
        }
        self.kv.free(id);
        self.wait_again(id);
        self.preempted_ids.push(id);
    }

    fn wait_again(&mut self, id: RequestId) {
        let request = self.requests.get_mut(&id).expect("running requests exist");
        (request.num_computed_tokens, request.num_scheduled_tokens) = (0, 0);
        request.awaits_prompt = false;
        request.status = RequestStatus::Preempted;
        self.waiting.push_front(id);
    }

    fn remove(&mut self, id: RequestId) -> Option<Request> {
        let mut request = self.requests.remove(&id)?;
        let swapped = self.swap.forget(id);
        if request.status == RequestStatus::Running || swapped {
            self.finished_ids.push(id);
        }
        request.status = RequestStatus::Finished;
        self.kv.free(id);
        self.running.retain(|r| *r != id);
        self.waiting.retain(|r| *r != id);
        Some(request)
    }
}

/// Moves one request past its share of a step.
fn advance(
    request: &mut Request,
    share: &ScheduledSequence,
    output: Option<SequenceOutput>,
    vocab_size: usize,
    max_model_len: usize,
) -> RequestUpdate {
    let request_id = share.request_id;
    let mut update = RequestUpdate {
        request_id,
        token_id: None,
        logprobs: None,
        prompt_logprobs: Vec::new(),
        num_cached_tokens: request.num_cached_tokens(),
        finished: None,
    };
    let position = share.end_position();
    let missing = RequestError::MissingOutput {
        request_id,
        position,
    };
    let Some(output) = output else {
        update.finished = Some(Err(missing));
        return update;
    };
    if let Some(error) = output.error {
        update.finished = Some(Err(error));
        return update;
    }
    if output.prompt_logprobs.len() != share.prompt_logprob_targets.len()
        || output.token_id.is_some() != share.samples
        || output.logprobs.is_some() != (share.samples && share.sampling.params.logprobs.is_some())
    {
        update.finished = Some(Err(missing));
        return update;
    }
    request.num_computed_tokens = position;
    request.num_scheduled_tokens = 0;
    // Row i of the share reports on prompt token `start + 1 + i`, entry `start + i` of the list.
    let reported = request
        .num_prompt_logprobs
        .saturating_sub(share.num_computed_tokens);
    update.prompt_logprobs = output.prompt_logprobs.into_iter().skip(reported).collect();
    request.num_prompt_logprobs += update.prompt_logprobs.len();

    if let Some(id) = output.token_id {
        if id as usize >= vocab_size {
            update.finished = Some(Err(RequestError::InvalidSample {
                request_id,
                id,
                position,
                vocab_size,
            }));
            return update;
        }
        let reason = request.append_token(id, max_model_len);
        if reason != Some(FinishReason::Stop) {
            update.token_id = Some(id);
            update.logprobs = output.logprobs;
        }
        update.finished = reason.map(Ok);
    } else if !request.generates() && position == request.num_tokens() {
        update.finished = Some(Ok(FinishReason::Length));
    }
    update
}
