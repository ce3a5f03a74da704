//! Lives of requests under a scheduler, by example.

use super::fake_model::{EOS, FakeModel, VOCAB, config, request, scheduler, step, windowed};
use super::*;
use crate::types::{FinishReason, RequestId, SamplingParams};
use std::collections::BTreeMap;

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
    let result = model.run(&out, &s);
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
        let result = model.run(&out, &s);
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
fn a_window_holds_a_bounded_number_of_blocks_however_long_its_sequence() {
    let config = SchedulerConfig {
        max_model_len: 100_000,
        ..config(16, 9)
    };
    let prompt = |s: &mut Scheduler, max_tokens| {
        let params = SamplingParams {
            max_tokens,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        s.add_request(Request::new(RequestId(0), vec![7; 99], params, &[EOS]))
    };
    let mut full = scheduler(config.clone());
    assert!(matches!(
        prompt(&mut full, 100_000),
        Err(RequestError::NeverFits {
            num_tokens: 99_999,
            needed: 6250,
            available: 8,
            ..
        })
    ));
    // A window of 50 lies in at most five blocks, and what is computed of it in four.
    let mut s = windowed(config, &[Some(50)]);
    prompt(&mut s, 100_000).unwrap();
    let (mut steps, mut most) = (0, 0);
    while s.num_unfinished_requests() > 0 && steps < 2000 {
        let out = s.schedule();
        most = most.max(8 - s.kv_cache().num_free_blocks());
        let share = &out.scheduled[0];
        let output = SequenceOutput {
            request_id: share.request_id,
            token_id: share.samples.then_some(7),
            logprobs: None,
            prompt_logprobs: Vec::new(),
            error: None,
        };
        let result = ModelRunnerOutput {
            sequences: vec![output],
        };
        s.update_from_output(&out, result, VOCAB as usize);
        s.check_integrity().unwrap();
        assert!(8 - s.kv_cache().num_free_blocks() <= 4);
        steps += 1;
    }
    assert_eq!((steps, most), (2000, 5));
}

/// Three blocks hold a window of 33 wherever it lies, but not with a chunk of 24.
#[test]
fn a_chunk_is_cut_to_the_blocks_there_are() {
    let mut s = windowed(config(16, 4), &[Some(33)]);
    let mut model = FakeModel::default();
    for id in [1, 3] {
        s.add_request(request(id, 100, 5)).unwrap();
    }
    let (mut chunks, mut tokens) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    while s.num_unfinished_requests() > 0 {
        let out = s.schedule();
        assert_eq!(out.scheduled.len(), 1, "no room for two");
        chunks.push(out.scheduled[0].num_scheduled_tokens());
        let result = model.run(&out, &s);
        for u in s.update_from_output(&out, result, VOCAB as usize) {
            tokens.entry(u.request_id).or_default().extend(u.token_id);
        }
        s.check_integrity().unwrap();
    }
    assert_eq!(chunks[..5], [24, 24, 16, 16, 16]);
    assert_eq!(tokens[&RequestId(1)], tokens[&RequestId(3)]);
}

fn sharing(num_blocks: usize) -> SchedulerConfig {
    SchedulerConfig {
        enable_prefix_caching: true,
        ..config(16, num_blocks)
    }
}

#[test]
fn what_was_computed_is_not_computed_again() {
    let mut s = scheduler(sharing(20));
    let mut model = FakeModel::default();
    let mut run = |s: &mut Scheduler, request| {
        s.add_request(request).unwrap();
        let (mut tokens, mut cached, before) = (Vec::new(), 0, model.num_computed);
        while s.num_unfinished_requests() > 0 {
            for u in step(s, &mut model) {
                tokens.extend(u.token_id);
                cached = u.num_cached_tokens;
            }
        }
        (tokens, cached, model.num_computed - before)
    };
    let (first, cached, computed) = run(&mut s, request(1, 50, 5));
    assert_eq!((cached, computed), (0, 50 + first.len() - 1));
    let (again, cached, computed) = run(&mut s, request(3, 50, 5));
    assert_eq!((cached, computed), (48, 2 + first.len() - 1));
    assert_eq!(again, first);
    // Log-probabilities of the prompt come of computing it.
    assert_eq!(run(&mut s, request(4, 50, 0)).1, 0);
    let salted = SamplingParams {
        cache_salt: Some("another tenant".into()),
        ..request(5, 50, 5).params().clone()
    };
    let ids = request(5, 50, 5).token_ids().to_vec();
    let salted = Request::new(RequestId(5), ids, salted, &[EOS]);
    assert_eq!(run(&mut s, salted).1, 0);
}

#[test]
fn the_preempted_find_their_own_blocks() {
    // Eleven blocks: both prompts fit with one block to spare, their answers do not.
    let mut s = scheduler(sharing(12));
    let mut model = FakeModel::default();
    for (id, first) in [(1, 1), (3, 2)] {
        let params = SamplingParams {
            max_tokens: 40,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let prompt = (0..75).map(|i| (first + i) % VOCAB).collect();
        s.add_request(Request::new(RequestId(id), prompt, params, &[EOS]))
            .unwrap();
    }
    let (mut preempted, mut resumed) = (0, Vec::new());
    while s.num_unfinished_requests() > 0 {
        let out = s.schedule();
        preempted += out.preempted_ids.len();
        if let [share, ..] = &out.scheduled[..]
            && preempted > 0
            && share.request_id == RequestId(3)
        {
            resumed.push(share.num_computed_tokens);
            assert_eq!(s.request(RequestId(3)).unwrap().num_cached_tokens(), 0);
        }
        let result = model.run(&out, &s);
        s.update_from_output(&out, result, VOCAB as usize);
        s.check_integrity().unwrap();
    }
    assert_eq!(preempted, 1);
    // The other took eight of the eleven blocks; of its own six the first three were left.
    assert_eq!(resumed[0], 48);
}

/// Three answers to a prompt of 40 tokens: two whole blocks and half of one.
#[test]
fn a_shared_partial_block_is_copied_when_somebody_writes_into_it() {
    let mut s = scheduler(config(16, 20));
    let mut model = FakeModel::default();
    for id in [1, 3, 5] {
        let r = request(id, 40, 5);
        let params = SamplingParams {
            seed: id,
            ignore_eos: true,
            ..r.params().clone()
        };
        let ids = r.token_ids().to_vec();
        let r = Request::new(RequestId(id), ids, params, &[EOS]);
        s.add_request(r.with_prompt_of(RequestId(1))).unwrap();
    }
    let shares = |out: &SchedulerOutput| -> Vec<_> {
        let of = |q: &ScheduledSequence| (q.request_id.0, q.num_computed_tokens, q.end_position());
        out.scheduled.iter().map(of).collect()
    };
    for prompt in [0..24, 24..40] {
        let out = s.schedule();
        assert_eq!(shares(&out), [(1, prompt.start, prompt.end)], "others wait");
        s.check_integrity().unwrap();
        let result = model.run(&out, &s);
        s.update_from_output(&out, result, VOCAB as usize);
    }
    let out = s.schedule();
    assert_eq!(shares(&out), [(1, 40, 41), (3, 39, 40), (5, 39, 40)]);
    let tables = [1, 3, 5].map(|id| s.kv_cache().block_tables(RequestId(id))[0].clone());
    let copy = |dst: usize| BlockCopy {
        group: 0,
        src: tables[0][2],
        dst: tables[dst][2],
    };
    assert_eq!(out.block_copies, [copy(1), copy(2)]);
    assert_eq!(tables[1][..2], tables[0][..2]);
    s.check_integrity().unwrap();
    assert_eq!(
        s.schedule(),
        out,
        "a step that was not computed comes again"
    );
    // The copy for an aborted request is not made: its block may be another's.
    s.abort(RequestId(3)).unwrap();
    s.check_integrity().unwrap();
    let out = s.schedule();
    assert_eq!(out.block_copies, [copy(2)]);
    let result = model.run(&out, &s);
    s.update_from_output(&out, result, VOCAB as usize);
    s.check_integrity().unwrap();
    assert_eq!(s.schedule().block_copies, []);
    while s.num_unfinished_requests() > 0 {
        step(&mut s, &mut model);
    }
    assert_eq!(s.kv_cache().num_free_blocks(), 19);
}

/// A failing device may have written anything.
#[test]
fn what_a_failing_request_computed_is_not_shared() {
    let mut s = scheduler(sharing(20));
    let mut model = FakeModel::default();
    s.add_request(request(1, 40, 5)).unwrap();
    for _ in 0..2 {
        let out = s.schedule();
        let mut result = model.run(&out, &s);
        if let Some(id) = &mut result.sequences[0].token_id {
            *id = VOCAB;
        }
        s.update_from_output(&out, result, VOCAB as usize);
    }
    assert_eq!(s.num_unfinished_requests(), 0);
    s.add_request(request(3, 40, 5)).unwrap();
    assert_eq!(s.schedule().scheduled[0].num_computed_tokens, 0);
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
    let mut result = model.run(&out, &s);
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
