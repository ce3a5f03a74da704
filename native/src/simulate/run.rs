//! A trace served on a clock that the cost model moves: the engine's own scheduler and block pool, and
//! a runner that draws a token wherever one is due. Knows no device and no tokens' meaning.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use twoclock_core::sched::{
    Bound, CacheMetrics, CostModel, KvGroupSpec, ModelRunnerOutput, Request, Scheduler,
    SchedulerOutput, SequenceLoad, SequenceOutput, ServiceLevel, StepLoad,
};
use twoclock_core::types::{RequestId, SamplingParams};

use super::policy::{Limits, Policy};
use super::trace::TraceRequest;

/// What is the same for all policies.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What steps take.
    pub cost: CostModel,
    /// The model's KV groups.
    pub groups: Vec<KvGroupSpec>,
    /// Limits.
    pub limits: Limits,
    /// What to keep.
    pub slo: ServiceLevel,
}

/// How one request was served. Seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// When it came.
    pub arrival: f64,
    /// When its first token was drawn.
    pub first_token: f64,
    /// When its answer was whole; in a static batch, when the batch was.
    pub end: f64,
    /// Length of its answer.
    pub output_tokens: usize,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// When it began, seconds.
    pub begin: f64,
    /// What it took.
    pub seconds: f64,
    /// Sequences.
    pub num_seqs: usize,
    /// Tokens.
    pub num_tokens: usize,
    /// Tokens of answers that it drew.
    pub num_drawn: usize,
    /// Operations a byte.
    pub intensity: f64,
    /// Operations a second.
    pub flops: f64,
    /// What it waited for.
    pub bound: Bound,
    /// Slots that hold a token's keys and values.
    pub kv_used: usize,
    /// Slots that requests hold, used or not.
    pub kv_held: usize,
    /// Requests waited to be let in.
    pub crowded: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The policy.
    pub policy: Policy,
    /// Requests, in order of arrival.
    pub served: Vec<Served>,
    /// Times between tokens of one request, seconds.
    pub itl: Vec<f64>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Prefix hits and preemptions.
    pub cache: CacheMetrics,
    /// Slots there are.
    pub kv_slots: usize,
}

/// Ids are drawn below this; no id means anything here.
const VOCAB: u64 = 32_000;

/// Token at a position of a prompt: alike in a group's beginning, else a request's own.
fn token(request: &TraceRequest, index: usize, position: usize) -> u32 {
    let stream = match request.prefix_group {
        Some(group) if position < request.prefix_tokens => group,
        _ => !(index as u64),
    };
    let mixed = stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (position as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    ((mixed ^ (mixed >> 29)) % VOCAB) as u32
}

/// What has been seen of a request that is under way.
struct UnderWay {
    index: usize,
    last_token: Option<f64>,
}

/// Serves a trace under a policy.
///
/// # Errors
/// A request no engine of these limits could serve.
pub fn run(setup: &Setup, policy: Policy, trace: &[TraceRequest]) -> anyhow::Result<Outcome> {
    let limits = &setup.limits;
    let shape = setup.cost.shape();
    if trace.is_empty() {
        bail!("there is no request to serve");
    }
    let too_long = |r: &TraceRequest| r.prompt_tokens + r.output_tokens > limits.max_model_len;
    if let Some(index) = trace.iter().position(too_long) {
        bail!(
            "request {} of the trace has {} + {} tokens, but a sequence has {} at most: raise \
             --max-model-len",
            index + 1,
            trace[index].prompt_tokens,
            trace[index].output_tokens,
            limits.max_model_len
        );
    }
    let config = policy.config(limits);
    let is_static = matches!(policy, Policy::Static(_));
    let block_bytes = setup.groups.iter().map(|group| {
        let bytes = shape.kv_bytes_per_layer * (group.layers.len() * limits.block_size) as f64;
        bytes as u64
    });
    let mut scheduler =
        Scheduler::new(config, setup.groups.clone())?.with_block_bytes(block_bytes.collect());
    scheduler.set_preemption_cost(Box::new(setup.cost.clone()));
    if let Some(budget) = policy.budget(&setup.cost, setup.slo, limits) {
        scheduler.set_budget_policy(Box::new(budget));
    }

    let mut now = 0.0;
    let mut next = 0;
    let mut under_way: BTreeMap<RequestId, UnderWay> = BTreeMap::new();
    // Of a static batch: answers that are done, at their lengths, but go on being computed.
    let mut padding: Vec<SequenceLoad> = Vec::new();
    let mut ended_in_batch: Vec<usize> = Vec::new();
    let mut served: Vec<Served> = trace
        .iter()
        .map(|request| Served {
            arrival: request.arrival_s,
            first_token: f64::NAN,
            end: f64::NAN,
            output_tokens: request.output_tokens,
        })
        .collect();
    let (mut itl, mut steps) = (Vec::new(), Vec::new());
    loop {
        while let Some(request) = trace.get(next).filter(|request| request.arrival_s <= now) {
            let id = RequestId(next as u64);
            let prompt = (0..request.prompt_tokens).map(|at| token(request, next, at));
            let params = SamplingParams {
                max_tokens: request.output_tokens,
                ignore_eos: true,
                ..SamplingParams::default()
            };
            scheduler
                .add_request(Request::new(id, prompt.collect(), params, &[]))
                .with_context(|| format!("request {} of the trace", next + 1))?;
            under_way.insert(
                id,
                UnderWay {
                    index: next,
                    last_token: None,
                },
            );
            next += 1;
        }
        if scheduler.num_unfinished_requests() == 0 {
            match trace.get(next) {
                None => break,
                Some(request) => now = request.arrival_s,
            }
            continue;
        }
        let step = scheduler.schedule();
        if step.is_empty() {
            bail!(
                "the scheduler found nothing to do although requests wait: a flaw of this program"
            );
        }
        let mut load = StepLoad::of(
            shape,
            step.scheduled.iter().map(|share| SequenceLoad {
                num_tokens: share.num_scheduled_tokens(),
                num_computed_tokens: share.num_computed_tokens,
                samples: share.samples,
            }),
        );
        for done in &mut padding {
            load.add(shape, *done);
            done.num_computed_tokens += 1;
        }
        let cost = setup.cost.cost(&load);
        let seconds = cost.seconds + transfer_seconds(setup, &step);
        let (kv_used, kv_held) = slots(&scheduler);
        steps.push(Step {
            begin: now,
            seconds,
            num_seqs: step.scheduled.len(),
            num_tokens: load.num_tokens,
            num_drawn: step.scheduled.iter().filter(|share| share.samples).count(),
            intensity: cost.intensity(),
            flops: cost.flops / seconds,
            bound: cost.bound,
            kv_used,
            kv_held,
            crowded: scheduler.num_waiting_requests() > 0,
        });
        now += seconds;
        let output = draw(&step);
        for update in scheduler.update_from_output(&step, output, VOCAB as usize) {
            let id = update.request_id;
            let seen = under_way.get_mut(&id).context("an update of nobody's")?;
            let request = &mut served[seen.index];
            if update.token_id.is_some() {
                match seen.last_token.replace(now) {
                    None => request.first_token = now,
                    Some(last) => itl.push(now - last),
                }
            }
            if let Some(finished) = update.finished {
                finished.with_context(|| format!("request {} failed", seen.index + 1))?;
                request.end = now;
                if is_static {
                    ended_in_batch.push(seen.index);
                    let request = &trace[seen.index];
                    padding.push(SequenceLoad {
                        num_tokens: 1,
                        num_computed_tokens: request.prompt_tokens + request.output_tokens,
                        samples: true,
                    });
                }
                under_way.remove(&id);
            }
        }
        if is_static && scheduler.num_running_requests() == 0 {
            padding.clear();
            for index in ended_in_batch.drain(..) {
                served[index].end = now;
            }
        }
    }
    Ok(Outcome {
        policy,
        served,
        itl,
        steps,
        cache: scheduler.cache_metrics(),
        kv_slots: scheduler.kv_cache().num_usable_blocks() * limits.block_size,
    })
}

/// Slots with a token in them, and slots that requests hold.
fn slots(scheduler: &Scheduler) -> (usize, usize) {
    let usage = scheduler.kv_usage();
    let used = usage.allocated_slots - usage.unused_slots;
    (
        used,
        scheduler
            .num_reserved_slots()
            .unwrap_or(usage.allocated_slots),
    )
}

/// Time that pages take on their way to the host and back.
fn transfer_seconds(setup: &Setup, step: &SchedulerOutput) -> f64 {
    let shape = setup.cost.shape();
    let moved = step.swap_outs.iter().chain(&step.swap_ins);
    let bytes = moved.flat_map(|transfer| &transfer.blocks).map(|block| {
        let layers = setup.groups[block.group].layers.len();
        shape.kv_bytes_per_layer * (layers * setup.limits.block_size) as f64
    });
    bytes.sum::<f64>() / setup.cost.hardware().host_bandwidth
}

/// What a model might have drawn.
fn draw(step: &SchedulerOutput) -> ModelRunnerOutput {
    let sequences = step.scheduled.iter().map(|share| {
        let mixed = share.request_id.0.wrapping_mul(31) + share.end_position() as u64 * 7919;
        SequenceOutput {
            request_id: share.request_id,
            token_id: share.samples.then_some((mixed % VOCAB) as u32),
            logprobs: None,
            pooled: None,
            prompt_logprobs: Vec::new(),
            error: None,
        }
    });
    ModelRunnerOutput {
        sequences: sequences.collect(),
    }
}
