//! Whole lives of requests under a scheduler, by example and at random. Knows no device: the
//! "model" draws a hash of what came before.

use super::*;
use crate::types::{FinishReason, RequestId, SamplingParams, TokenId, TokenLogprobs};
use proptest::prelude::*;
use std::collections::BTreeMap;

const VOCAB: u32 = 50;
const EOS: TokenId = 0;

fn config(block_size: usize, num_blocks: usize) -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 24,
        max_model_len: 120,
        block_size,
        num_blocks,
        max_prefill_chunk: None,
    }
}

fn scheduler(config: SchedulerConfig) -> Scheduler {
    Scheduler::new(config, KvGroupSpec::full_attention(2)).unwrap()
}

fn request(id: u64, num_prompt_tokens: usize, max_tokens: usize) -> Request {
    let prompt = (0..num_prompt_tokens as u32).map(|i| 1 + i % (VOCAB - 1));
    let params = SamplingParams {
        max_tokens,
        prompt_logprobs: id.is_multiple_of(2),
        ..SamplingParams::default()
    };
    Request::new(RequestId(id), prompt.collect(), params, &[EOS])
}

/// Draws position-dependent tokens, and checks what each share promises against a cache it keeps:
/// every position of every sequence must have been written before it is read.
#[derive(Default)]
struct FakeModel {
    written: BTreeMap<RequestId, Vec<TokenId>>,
}

impl FakeModel {
    fn run(&mut self, step: &SchedulerOutput, config: &SchedulerConfig) -> ModelRunnerOutput {
        for id in step.finished_ids.iter().chain(&step.preempted_ids) {
            self.written.remove(id);
        }
        assert!(step.total_num_scheduled_tokens() <= config.max_num_batched_tokens);
        assert!(step.scheduled.len() <= config.max_num_seqs);
        let sequences = step.scheduled.iter().map(|share| {
            let cache = self.written.entry(share.request_id).or_default();
            assert_eq!(cache.len(), share.num_computed_tokens);
            cache.extend(&share.token_ids);
            let chunk = config.max_prefill_chunk.unwrap_or(usize::MAX);
            assert!((1..=chunk).contains(&share.num_scheduled_tokens()));
            let blocks = share.end_position().div_ceil(config.block_size);
            assert_eq!(share.block_tables[0].len(), blocks);
            let hash = cache.iter().fold(7u32, |h, t| h.wrapping_mul(31) ^ t);
            let logprob = |t: &TokenId| TokenLogprobs {
                logprob: -(*t as f32),
                top: vec![],
            };
            SequenceOutput {
                request_id: share.request_id,
                token_id: share.samples.then_some(hash % VOCAB),
                logprobs: None,
                prompt_logprobs: share.prompt_logprob_targets.iter().map(logprob).collect(),
                error: None,
            }
        });
        ModelRunnerOutput {
            sequences: sequences.collect(),
        }
    }
}

fn step(s: &mut Scheduler, model: &mut FakeModel) -> Vec<RequestUpdate> {
    let out = s.schedule();
    s.check_integrity().unwrap();
    let result = model.run(&out, &s.config().clone());
    let updates = s.update_from_output(&out, result, VOCAB as usize);
    s.check_integrity().unwrap();
    updates
}

#[test]
fn running_goes_before_waiting_and_chunks_fill_the_budget() {
    let mut s = scheduler(config(16, 20));
    let mut model = FakeModel::default();
    s.add_request(request(1, 30, 5)).unwrap();
    s.add_request(request(2, 10, 5)).unwrap();
    let shares = |out: &SchedulerOutput| -> Vec<_> {
        let of = |q: &ScheduledSequence| (q.request_id.0, q.num_scheduled_tokens(), q.samples);
        out.scheduled.iter().map(of).collect()
    };
    let out = s.schedule();
    assert_eq!(shares(&out), [(1, 24, false)]);
    assert_eq!(
        s.schedule(),
        out,
        "a step that was not computed comes again"
    );
    let result = model.run(&out, &s.config().clone());
    s.update_from_output(&out, result, VOCAB as usize);
    let out = s.schedule();
    assert_eq!(shares(&out), [(1, 6, true), (2, 10, true)]);
}

#[test]
fn the_newest_gives_way_and_comes_back() {
    // Five usable blocks: two prompts of two blocks fit, two sequences of three do not.
    let mut s = scheduler(config(16, 6));
    let mut model = FakeModel::default();
    for id in [1, 3] {
        let prompt = request(id, 20, 20);
        let params = SamplingParams {
            ignore_eos: true,
            ..prompt.params().clone()
        };
        let prompt = prompt.token_ids().to_vec();
        s.add_request(Request::new(RequestId(id), prompt, params, &[EOS]))
            .unwrap();
    }
    let (mut preempted, mut outputs) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    for _ in 0..200 {
        let out = s.schedule();
        preempted.extend(out.preempted_ids.clone());
        let result = model.run(&out, &s.config().clone());
        for u in s.update_from_output(&out, result, VOCAB as usize) {
            outputs.entry(u.request_id).or_default().extend(u.token_id);
        }
        s.check_integrity().unwrap();
    }
    assert_eq!(preempted, [RequestId(3)]);
    assert_eq!(s.num_unfinished_requests(), 0);
    assert_eq!(s.kv_cache().num_free_blocks(), 5);
    assert_eq!(outputs[&RequestId(1)], outputs[&RequestId(3)]);
    assert_eq!(outputs[&RequestId(1)].len(), 20);
}

#[test]
fn what_can_never_fit_is_refused_with_the_numbers() {
    let mut s = scheduler(config(16, 6));
    assert_eq!(
        s.add_request(request(1, 0, 1)),
        Err(RequestError::EmptyPrompt)
    );
    assert_eq!(
        s.add_request(request(1, 120, 1)),
        Err(RequestError::PromptTooLong {
            num_prompt_tokens: 120,
            room: 1,
            max_model_len: 120
        })
    );
    assert_eq!(
        s.add_request(request(1, 80, 2)),
        Err(RequestError::NeverFits {
            num_tokens: 81,
            needed: 6,
            block_size: 16,
            available: 5
        })
    );
    assert_eq!(s.add_request(request(1, 80, 1)), Ok(()));
    let mut s = scheduler(config(16, 20));
    assert_eq!(s.add_request(request(1, 120, 0)), Ok(()), "only scored");
    assert!(s.add_request(request(2, 119, usize::MAX)).is_ok());
}

#[test]
fn a_scored_prompt_ends_without_a_token() {
    let mut s = scheduler(config(16, 20));
    let mut model = FakeModel::default();
    s.add_request(request(2, 40, 0)).unwrap();
    let first = step(&mut s, &mut model).remove(0);
    assert_eq!((first.prompt_logprobs.len(), first.finished), (24, None));
    let last = step(&mut s, &mut model).remove(0);
    assert_eq!(last.prompt_logprobs.len(), 15);
    assert_eq!(last.token_id, None);
    assert_eq!(last.finished, Some(Ok(FinishReason::Length)));
}

#[test]
fn one_failing_sequence_costs_the_others_nothing() {
    let mut s = scheduler(config(16, 20));
    let mut model = FakeModel::default();
    for id in [1, 3, 5, 7] {
        s.add_request(request(id, 5, 9)).unwrap();
    }
    let out = s.schedule();
    let mut result = model.run(&out, &s.config().clone());
    result.sequences[0].token_id = Some(VOCAB);
    result.sequences[1].token_id = None;
    result.sequences[2].error = Some(RequestError::EmptyPrompt);
    let updates = s.update_from_output(&out, result, VOCAB as usize);
    let ends: Vec<_> = updates.into_iter().map(|u| u.finished).collect();
    assert!(matches!(
        ends[0],
        Some(Err(RequestError::InvalidSample {
            id: VOCAB,
            position: 5,
            ..
        }))
    ));
    assert!(matches!(
        ends[1],
        Some(Err(RequestError::MissingOutput { position: 5, .. }))
    ));
    assert_eq!(ends[2], Some(Err(RequestError::EmptyPrompt)));
    assert_eq!(ends[3], None);
    s.check_integrity().unwrap();
    assert_eq!(s.schedule().finished_ids, [1, 3, 5].map(RequestId));
}

#[derive(Clone, Debug)]
enum Op {
    Add { prompt: usize, max_tokens: usize },
    Step,
    FailedStep,
    Abort(prop::sample::Index),
    AbortMidStep(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0usize..130, 0usize..40).prop_map(|(prompt, max_tokens)| Op::Add { prompt, max_tokens }),
        8 => Just(Op::Step),
        1 => Just(Op::FailedStep),
        1 => index().prop_map(Op::Abort),
        1 => index().prop_map(Op::AbortMidStep),
    ]
}

#[derive(Default)]
struct Outcome {
    tokens: Vec<TokenId>,
    prompt_logprobs: Vec<f32>,
    finished: bool,
}

/// What one request gets when it has the engine to itself, with room for everything.
fn alone(request: Request) -> Outcome {
    let mut s = scheduler(SchedulerConfig {
        max_num_batched_tokens: 4096,
        ..config(16, 100)
    });
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
        self.finished = update.finished.is_some();
        assert!(!matches!(update.finished, Some(Err(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_request_gets_its_tokens_and_every_block_comes_back(
        ops in prop::collection::vec(op(), 1..80),
        block_size in prop::sample::select(vec![16usize, 32]),
        num_blocks in 2usize..14,
        max_num_seqs in 1usize..6,
        max_num_batched_tokens in 1usize..80,
        max_prefill_chunk in prop::option::of(1usize..40),
    ) {
        let config = SchedulerConfig {
            max_num_seqs, max_num_batched_tokens, max_prefill_chunk,
            ..config(block_size, num_blocks)
        };
        let mut s = scheduler(config.clone());
        let mut model = FakeModel::default();
        let mut live: BTreeMap<RequestId, (Request, Outcome)> = BTreeMap::new();
        let mut over = Vec::new();
        let mut next_id = 0;
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
                Op::Add { prompt, max_tokens } => {
                    let r = request(next_id, prompt, max_tokens);
                    match s.add_request(r.clone()) {
                        Ok(()) => drop(live.insert(r.id(), (r, Outcome::default()))),
                        Err(RequestError::EmptyPrompt) => prop_assert_eq!(prompt, 0),
                        Err(RequestError::PromptTooLong { .. }) => prop_assert!(prompt + max_tokens.min(1) > 120),
                        Err(RequestError::NeverFits { needed, .. }) => prop_assert!(needed > num_blocks - 1),
                        Err(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                    next_id += 1;
                }
                Op::Step => settle(step(&mut s, &mut model), &mut live, &mut over),
                Op::FailedStep => drop(s.schedule()),
                Op::Abort(index) if !live.is_empty() => {
                    let id = *live.keys().nth(index.index(live.len())).unwrap();
                    live.remove(&id);
                    prop_assert!(s.abort(id).is_some());
                    prop_assert!(s.abort(id).is_none());
                }
                Op::AbortMidStep(index) if !live.is_empty() => {
                    let id = *live.keys().nth(index.index(live.len())).unwrap();
                    let out = s.schedule();
                    let result = model.run(&out, &config);
                    live.remove(&id);
                    prop_assert!(s.abort(id).is_some());
                    settle(s.update_from_output(&out, result, VOCAB as usize), &mut live, &mut over);
                }
                Op::Abort(_) | Op::AbortMidStep(_) => {}
            }
            s.check_integrity().map_err(TestCaseError::fail)?;
        }
        // Each step computes at least one token of the oldest request, so this many are enough
        // even if every other one is thrown out and starts again.
        for _ in 0..400 * (1 + live.len()) {
            if s.num_unfinished_requests() == 0 { break; }
            settle(step(&mut s, &mut model), &mut live, &mut over);
        }
        prop_assert_eq!(live.len(), 0);
        prop_assert_eq!(s.num_unfinished_requests(), 0);
        prop_assert_eq!(s.kv_cache().num_free_blocks(), num_blocks - 1);
        for (request, outcome) in over {
            let reference = alone(request);
            prop_assert_eq!(outcome.tokens, reference.tokens);
            prop_assert_eq!(outcome.prompt_logprobs, reference.prompt_logprobs);
        }
    }
}
