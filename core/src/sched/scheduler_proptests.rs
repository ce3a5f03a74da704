//! Whole lives of requests under a scheduler, at random: every one gets what it gets alone.

use super::fake_model::{EOS, FakeModel, VOCAB, config, request, scheduler, step, windowed};
use super::*;
use crate::types::{PoolingParams, PoolingType, RequestId, SamplingParams, TokenId};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
enum Op {
    Add {
        prompt: usize,
        max_tokens: usize,
        /// Where the prompt leaves that of the others.
        fork: usize,
        salted: bool,
        /// It asks for an embedding instead.
        pooling: Option<PoolingType>,
        /// Requests with this prompt.
        n: u64,
        /// Whether a draw depends on which tokens were drawn before.
        penalized: bool,
    },
    /// Launches steps while there is room in flight, and finishes the oldest.
    Step,
    /// Launches one more.
    Launch,
    /// Fails with all that are in flight: the last one before anything happens, or after all of it
    /// did.
    FailedStep(bool),
    LostDevice,
    Abort(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0usize..130, 0usize..40, 0usize..130, any::<bool>(), pooling(), 1u64..4, any::<bool>()).prop_map(
            |(prompt, max_tokens, fork, salted, pooling, n, penalized)| {
                Op::Add { prompt, max_tokens, fork, salted, pooling, n, penalized }
            }
        ),
        8 => Just(Op::Step),
        2 => Just(Op::Launch),
        1 => any::<bool>().prop_map(Op::FailedStep),
        1 => Just(Op::LostDevice),
        2 => index().prop_map(Op::Abort),
    ]
}

fn pooling() -> impl Strategy<Value = Option<PoolingType>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(PoolingType::Mean)),
        1 => Just(Some(PoolingType::Last)),
    ]
}

#[derive(Default)]
struct Outcome {
    pooled: Vec<f32>,
    tokens: Vec<TokenId>,
    prompt_logprobs: Vec<f32>,
    finished: bool,
}

/// Schedules a step and computes it; its output is for later.
fn launch(
    s: &mut Scheduler,
    model: &mut FakeModel,
) -> Option<(SchedulerOutput, ModelRunnerOutput)> {
    let step = s.schedule();
    let result = (!step.is_empty()).then(|| model.run(&step, s))?;
    Some((step, result))
}

/// What one request gets when it has the engine to itself, with room for everything.
fn alone(request: Request) -> Outcome {
    let config = SchedulerConfig {
        max_num_batched_tokens: 4096,
        ..config(16, 100)
    };
    let mut s = scheduler(config);
    s.add_request(request).unwrap();
    let (mut model, mut outcome) = (FakeModel::default(), Outcome::default());
    while s.num_unfinished_requests() > 0 {
        step(&mut s, &mut model)
            .into_iter()
            .for_each(|u| outcome.take(u));
    }
    outcome
}

impl Outcome {
    fn take(&mut self, update: RequestUpdate) {
        assert!(!self.finished, "an update after the end");
        self.tokens.extend(update.token_id);
        let logprobs = update.prompt_logprobs.iter();
        self.prompt_logprobs.extend(logprobs.map(|l| l.logprob));
        self.pooled.extend(update.pooled.into_iter().flatten());
        self.finished = update.finished.is_some();
        assert!(!matches!(update.finished, Some(Err(_))));
    }
}

/// Groups of a model: one, or several with pools of their own.
const WINDOWS: [&[Option<usize>]; 7] = [
    &[None],
    &[Some(1)],
    &[Some(20)],
    &[Some(64)],
    &[None, Some(16)],
    &[Some(33), None],
    &[Some(7), None, Some(50)],
];

const MODES: [PreemptionMode; 3] = [
    PreemptionMode::Recompute,
    PreemptionMode::Swap,
    PreemptionMode::Auto,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_request_gets_its_tokens_and_every_block_comes_back(
        ops in prop::collection::vec(op(), 1..80),
        block_size in prop::sample::select(vec![16usize, 32]),
        num_blocks in 2usize..14,
        max_num_seqs in 1usize..6,
        max_num_batched_tokens in 1usize..80,
        max_prefill_chunk in prop::option::of(1usize..40),
        windows in prop::sample::select(WINDOWS.to_vec()),
        enable_prefix_caching in any::<bool>(),
        preemption_mode in prop::sample::select(MODES.to_vec()),
        swap_space_bytes in 0u64..200,
        run_ahead in 0usize..4,
    ) {
        let config = SchedulerConfig {
            max_num_seqs, max_num_batched_tokens, max_prefill_chunk, enable_prefix_caching,
            preemption_mode, swap_space_bytes, run_ahead,
            ..config(block_size, num_blocks)
        };
        let mut s = windowed(config, windows);
        s.set_preemption_cost(Box::new(LinearPreemptionCost {
            seconds_per_token: 1.0,
            seconds_per_byte: 0.5,
        }));
        let mut model = FakeModel::default();
        let mut live: BTreeMap<RequestId, (Request, Outcome)> = BTreeMap::new();
        let mut over = Vec::new();
        let mut next_id = 0;
        let mut in_flight = VecDeque::new();
        let settle = |updates: Vec<RequestUpdate>, live: &mut BTreeMap<_, (Request, Outcome)>, over: &mut Vec<_>| {
            for u in updates {
                let id = u.request_id;
                let entry = live.get_mut(&id).expect("only live requests are updated");
                entry.1.take(u);
                if entry.1.finished {
                    over.extend(live.remove(&id));
                }
            }
        };
        for op in ops {
            match op {
                Op::Add { prompt, max_tokens, fork, salted, pooling, n, penalized } => for seed in 0..n {
                    let first = next_id - seed;
                    let r = request(next_id, prompt, max_tokens);
                    let mut ids = r.token_ids().to_vec();
                    ids.iter_mut().skip(fork).for_each(|id| *id = 1 + *id % (VOCAB - 1));
                    let params = SamplingParams {
                        cache_salt: salted.then(|| "salt".to_owned()),
                        seed,
                        priority: (first % 5) as i32 - 2,
                        presence_penalty: f32::from(u8::from(penalized)),
                        ..r.params().clone()
                    };
                    let max_tokens = if pooling.is_some() { 0 } else { max_tokens };
                    let r = match pooling {
                        Some(pooling) => {
                            let SamplingParams { cache_salt, priority, .. } = params;
                            let wanted = PoolingParams { pooling, cache_salt, priority, ..PoolingParams::default() };
                            Request::pooling(r.id(), ids, &wanted)
                        }
                        None => Request::new(r.id(), ids, params, &[EOS]),
                    };
                    let r = r.with_prompt_of(RequestId(first));
                    match s.add_request(r.clone()) {
                        Ok(()) => drop(live.insert(r.id(), (r, Outcome::default()))),
                        Err(RequestError::EmptyPrompt) => prop_assert_eq!(prompt, 0),
                        Err(RequestError::PromptTooLong { .. }) => prop_assert!(prompt + max_tokens.min(1) > 120),
                        Err(RequestError::NeverFits { needed, available, .. }) => {
                            prop_assert!(needed > available && available < num_blocks);
                        }
                        Err(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                    next_id += 1;
                }
                Op::Step => {
                    while in_flight.len() <= run_ahead {
                        match launch(&mut s, &mut model) {
                            Some(step) => in_flight.push_back(step),
                            None => break,
                        }
                        s.check_integrity().map_err(TestCaseError::fail)?;
                    }
                    if let Some((step, result)) = in_flight.pop_front() {
                        settle(s.update_from_output(&step, result, VOCAB as usize), &mut live, &mut over);
                    }
                }
                Op::Launch if in_flight.len() <= run_ahead => {
                    in_flight.extend(launch(&mut s, &mut model));
                }
                Op::Launch => {}
                Op::LostDevice => {
                    in_flight.clear();
                    s.forget_device();
                    model = FakeModel::default();
                }
                Op::FailedStep(computed) => {
                    let out = s.schedule();
                    if computed && !out.is_empty() {
                        model.run(&out, &s);
                    }
                    in_flight.clear();
                    s.retract();
                }
                Op::Abort(index) if !live.is_empty() => {
                    let id = *live.keys().nth(index.index(live.len())).unwrap();
                    live.remove(&id);
                    prop_assert!(s.abort(id).is_some());
                    prop_assert!(s.abort(id).is_none());
                }
                Op::Abort(_) => {}
            }
            s.check_integrity().map_err(TestCaseError::fail)?;
            let usage = s.kv_usage();
            prop_assert!(usage.unused_slots <= usage.allocated_slots);
            prop_assert!(usage.unused_slots <= max_num_seqs * windows.len() * (block_size - 1));
        }
        // Each step computes at least one token of the first that runs, so this many are enough
        // even if every other one is thrown out and starts again.
        for _ in 0..400 * (1 + live.len()) {
            if s.num_unfinished_requests() == 0 { break; }
            while in_flight.len() <= run_ahead && let Some(step) = launch(&mut s, &mut model) {
                in_flight.push_back(step);
            }
            let (step, result) = in_flight.pop_front().expect("somebody can go on");
            settle(s.update_from_output(&step, result, VOCAB as usize), &mut live, &mut over);
            s.check_integrity().map_err(TestCaseError::fail)?;
        }
        // Of requests that ended before it was known.
        for (step, result) in in_flight {
            prop_assert_eq!(s.update_from_output(&step, result, VOCAB as usize), []);
        }
        prop_assert_eq!(live.len(), 0);
        prop_assert_eq!(s.num_unfinished_requests(), 0);
        prop_assert_eq!(s.kv_cache().num_free_blocks(), s.kv_cache().num_usable_blocks());
        prop_assert_eq!(s.num_swapped_bytes(), 0);
        prop_assert_eq!(s.kv_usage(), KvUsage::default());
        for (request, outcome) in over {
            let reference = alone(request);
            prop_assert_eq!(outcome.tokens, reference.tokens);
            prop_assert_eq!(outcome.pooled, reference.pooled);
            prop_assert_eq!(outcome.prompt_logprobs, reference.prompt_logprobs);
        }
    }
}
