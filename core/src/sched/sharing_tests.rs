//! Shared beginnings, shared prompts and preemption under a scheduler, by example.

use super::fake_model::{EOS, FakeModel, PAGE_BYTES, VOCAB, config, request, scheduler, step};
use super::*;
use crate::types::{RequestId, SamplingParams};
use std::collections::BTreeMap;

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
    s.retract();
    s.check_integrity().unwrap();
    assert_eq!(s.schedule(), out, "what was taken back comes again");
    // The copy for an aborted request is not made: its block may be another's.
    s.abort(RequestId(3)).unwrap();
    s.retract();
    s.check_integrity().unwrap();
    let out = s.schedule();
    assert_eq!(out.block_copies, [copy(2)]);
    let result = model.run(&out, &s);
    s.update_from_output(&out, result, VOCAB as usize);
    s.check_integrity().unwrap();
    assert_eq!(s.schedule().block_copies, []);
    s.retract();
    while s.num_unfinished_requests() > 0 {
        step(&mut s, &mut model);
    }
    assert_eq!(s.kv_cache().num_free_blocks(), 19);
}

/// Two sequences that do not fit together: how often each token was computed, and the preemptions.
fn two_that_do_not_fit(
    preemption_mode: PreemptionMode,
    swap_space_bytes: u64,
    seconds_per_byte: f64,
) -> (usize, CacheMetrics) {
    let mut s = scheduler(SchedulerConfig {
        preemption_mode,
        swap_space_bytes,
        ..config(16, 9)
    });
    s.set_preemption_cost(Box::new(LinearPreemptionCost {
        seconds_per_token: 1.0,
        seconds_per_byte,
    }));
    let mut model = FakeModel::default();
    for id in [1, 3] {
        let r = request(id, 50, 40);
        let params = SamplingParams {
            ignore_eos: true,
            ..r.params().clone()
        };
        let ids = r.token_ids().to_vec();
        s.add_request(Request::new(RequestId(id), ids, params, &[EOS]))
            .unwrap();
    }
    let mut tokens = BTreeMap::<_, Vec<_>>::new();
    while s.num_unfinished_requests() > 0 {
        for u in step(&mut s, &mut model) {
            tokens.entry(u.request_id).or_default().extend(u.token_id);
        }
        assert!(s.num_swapped_bytes() <= swap_space_bytes);
    }
    assert_eq!(s.num_swapped_bytes(), 0);
    assert_eq!(tokens[&RequestId(1)], tokens[&RequestId(3)]);
    (model.num_computed, s.cache_metrics())
}

#[test]
fn what_is_swapped_is_not_computed_again() {
    let once = 2 * (50 + 39);
    let (computed, metrics) = two_that_do_not_fit(PreemptionMode::Recompute, 1000, 0.0);
    assert!(computed > once + 50);
    assert_eq!(metrics.num_preemptions_recompute, 1);
    assert_eq!(metrics.num_preemptions_swap, 0);
    let (computed, metrics) = two_that_do_not_fit(PreemptionMode::Swap, 1000, 9.0);
    assert_eq!(computed, once);
    assert_eq!(metrics.num_preemptions_swap, 1);
    assert_eq!(metrics.num_preemptions_recompute, 0);
    // Four pages do not fit into the room for three, and are computed again.
    let (_, metrics) = two_that_do_not_fit(PreemptionMode::Swap, 3 * PAGE_BYTES, 0.0);
    assert_eq!(metrics.num_preemptions_swap, 0);
    for (seconds_per_byte, swaps) in [(0.5, 1), (1.0, 0)] {
        // Four pages hold 49 to 64 tokens, and are moved twice.
        let (_, metrics) = two_that_do_not_fit(PreemptionMode::Auto, 1000, seconds_per_byte);
        assert_eq!(metrics.num_preemptions_swap, swaps);
        assert_eq!(metrics.num_preemptions_recompute, 1 - swaps);
    }
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

/// After a step failed the first request is aborted, and the one that waited for its prompt takes
/// most of the budget: what is left for the last one needs fewer blocks than it has.
#[test]
fn a_smaller_share_after_a_failed_step_gives_blocks_back() {
    let mut s = scheduler(SchedulerConfig {
        max_num_batched_tokens: 42,
        max_prefill_chunk: Some(30),
        ..config(16, 20)
    });
    let mut model = FakeModel::default();
    let add = |s: &mut Scheduler, id, first, prompt| {
        let r = request(id, prompt, 3).with_prompt_of(RequestId(first));
        s.add_request(r).unwrap();
    };
    add(&mut s, 1, 1, 52);
    add(&mut s, 3, 1, 52);
    step(&mut s, &mut model);
    add(&mut s, 5, 5, 40);
    let shares = |out: &SchedulerOutput| -> Vec<_> {
        let of = |q: &ScheduledSequence| (q.request_id.0, q.num_scheduled_tokens());
        out.scheduled.iter().map(of).collect()
    };
    let held = |s: &Scheduler| s.kv_cache().block_tables(RequestId(5))[0].len();
    assert_eq!(shares(&s.schedule()), [(1, 22), (5, 20)]);
    assert_eq!(held(&s), 2);
    assert!(s.abort(RequestId(1)).is_some());
    s.retract();
    let out = s.schedule();
    assert_eq!(shares(&out), [(3, 30), (5, 12)]);
    assert_eq!(held(&s), 1);
    s.check_integrity().unwrap();
    let result = model.run(&out, &s);
    s.update_from_output(&out, result, VOCAB as usize);
    while s.num_unfinished_requests() > 0 {
        step(&mut s, &mut model);
    }
}
