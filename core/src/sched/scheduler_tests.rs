//! Lives of requests under a scheduler, by example.

use super::fake_model::{EOS, FakeModel, VOCAB, config, request, scheduler, step, windowed};
use super::*;
use crate::types::{FinishReason, RequestId, SamplingParams, TokenId};
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
    s.retract();
    assert_eq!(s.schedule(), out, "what was taken back comes again");
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
    while s.num_unfinished_requests() > 0 {
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
            pooled: None,
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

#[test]
fn a_request_that_bans_everything_is_told_so() {
    let params = |min_tokens| SamplingParams {
        stop_token_ids: (0..VOCAB).collect(),
        min_tokens,
        max_tokens: 9,
        ..SamplingParams::default()
    };
    for (min_tokens, banned) in [(2, true), (0, false)] {
        let mut s = scheduler(config(16, 20));
        let mut model = FakeModel::default();
        let request = Request::new(RequestId(1), vec![1, 2, 3], params(min_tokens), &[EOS]);
        s.add_request(request).unwrap();
        let out = s.schedule();
        let mut result = model.run(&out, &s);
        // What the draw gives where nothing is left.
        result.sequences[0].token_id = Some(TokenId::MAX);
        let update = s.update_from_output(&out, result, VOCAB as usize).remove(0);
        let error = update.finished.unwrap().unwrap_err();
        let told = matches!(error, RequestError::EverythingBanned { .. });
        assert_eq!(told, banned, "{error}");
    }
}
