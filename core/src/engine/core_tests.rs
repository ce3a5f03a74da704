//! The engine on a model that is only a hash: the same tokens however they are served.

use super::core::EngineCore;
use super::paged_hash::{
    Answer, EOS, PagedHash, config, drive, engine, engine_ending_at, model, prompt, serve,
    served_alone,
};
use crate::clock::ManualClock;
use crate::sched::{ConfigError, RequestError, SchedulerConfig};
use crate::types::{FinishReason, RequestId, SamplingParams, TokenId};
use pollster::block_on;
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn the_same_answers_however_served() {
    let alone = served_alone();
    for (index, answer) in alone.iter().enumerate() {
        assert_eq!(answer.token_ids.len(), 60, "prompt {index}");
        assert_eq!(answer.finished, Some(Ok(FinishReason::Length)));
        let (ids, params) = prompt(index);
        let scored = if params.prompt_logprobs.is_some() {
            ids.len() - 1
        } else {
            0
        };
        assert_eq!(answer.prompt_logprobs.len(), scored);
        let logprobs = if params.logprobs.is_some() { 60 } else { 0 };
        assert_eq!(answer.logprobs.len(), logprobs);
    }
    assert_ne!(alone[3].token_ids, alone[4].token_ids);
    for block_size in [16, 32] {
        for max_prefill_chunk in [None, Some(7), Some(64), Some(512)] {
            for max_num_batched_tokens in [13, 2048] {
                let mut batched = engine(SchedulerConfig {
                    block_size,
                    max_prefill_chunk,
                    max_num_batched_tokens,
                    ..config()
                });
                assert_eq!(serve(&mut batched, 0..8), alone);
            }
        }
    }
}

#[test]
fn the_same_answers_when_blocks_run_out() {
    let alone = served_alone();
    // The longest needs all blocks there are, so whoever runs beside it is thrown out.
    for (num_blocks, order) in [
        (48, vec![7, 0, 1, 2, 3, 4, 5, 6]),
        (12, vec![0, 1, 2, 3, 6, 5, 4]),
    ] {
        let mut tight = engine(SchedulerConfig {
            num_blocks: 1 + num_blocks,
            max_prefill_chunk: Some(64),
            ..config()
        });
        let answers = serve(&mut tight, order.clone());
        for (index, answer) in order.into_iter().zip(answers) {
            assert_eq!(answer, alone[index], "prompt {index}");
        }
        let preempted = tight.runner_mut().num_preemptions;
        assert!(preempted > 0, "{num_blocks} blocks were enough for all");
        let free = tight.scheduler().kv_cache().num_free_blocks();
        assert_eq!(free, num_blocks);
    }
}

/// All prompts at once and again, so that the second time everything is found, and with blocks for
/// half of it, so that some is and some is not.
#[test]
fn the_same_answers_when_beginnings_are_shared() {
    let alone = served_alone();
    for num_blocks in [400, 49] {
        let mut engine = engine(SchedulerConfig {
            num_blocks,
            enable_prefix_caching: true,
            max_prefill_chunk: Some(64),
            ..config()
        });
        for _ in 0..2 {
            assert_eq!(serve(&mut engine, 0..8), alone, "{num_blocks} blocks");
        }
        let completion = block_on(engine.generate(vec![prompt(7)]))
            .unwrap()
            .remove(0);
        let completion = completion.unwrap();
        assert_eq!(completion.token_ids, alone[7].token_ids);
        if num_blocks == 400 {
            assert_eq!(completion.num_cached_tokens, 43 * 16);
        }
    }
}

/// `n` answers are those of as many requests with their seeds, of one prompt computed once.
#[test]
fn answers_of_one_prompt_share_it() {
    for (enable_prefix_caching, num_blocks, chunk) in [
        (false, 400, 64),
        (true, 400, 512),
        (false, 60, 64),
        (true, 60, 13),
    ] {
        let config = SchedulerConfig {
            num_blocks,
            enable_prefix_caching,
            max_prefill_chunk: Some(chunk),
            ..config()
        };
        let (ids, params) = prompt(7);
        let seeded = |seed| {
            let params = SamplingParams {
                seed,
                prompt_logprobs: None,
                ..params.clone()
            };
            let mut alone = engine(config.clone());
            let answers = block_on(alone.generate(vec![(ids.clone(), params)]));
            answers.unwrap().remove(0).unwrap().token_ids
        };
        let mut engine = engine(config.clone());
        let before = engine.add_request(prompt(4).0, prompt(4).1).unwrap();
        let several = SamplingParams {
            n: 3,
            prompt_logprobs: Some(0),
            ..params.clone()
        };
        let empty = SamplingParams {
            n: 2,
            ..SamplingParams::default()
        };
        let requests = vec![(vec![], empty), (ids.clone(), several), prompt(0)];
        let answers = block_on(engine.generate(requests)).unwrap();
        assert_eq!(answers.len(), 2 + 3 + 1);
        assert_eq!(answers[..2], [const { Err(RequestError::EmptyPrompt) }; 2]);
        for (index, answer) in answers[2..5].iter().enumerate() {
            let answer = answer.as_ref().unwrap();
            assert_eq!(answer.index, index);
            assert_eq!(answer.request_id, RequestId(before.0 + 1));
            assert_eq!(answer.token_ids, seeded(7 + index as u64), "answer {index}");
            let scored = if index == 0 { 699 } else { 0 };
            assert_eq!(answer.prompt_logprobs.len(), scored);
        }
        assert_eq!(answers[5].as_ref().unwrap().token_ids.len(), 60);
        if num_blocks == 400 {
            for answer in &answers[3..5] {
                assert_eq!(answer.as_ref().unwrap().num_cached_tokens, 699);
            }
            let mut left = BTreeMap::new();
            drive(&mut engine, &mut left);
            // Each answer's 60 tokens are drawn by 60 computed ones, one of them of the prompt.
            let computed = engine.runner().num_computed;
            assert_eq!(computed, 699 + 3 * 60 + (17 + 59) + (1 + 59));
        }
    }
}

#[test]
fn all_answers_of_a_request_are_aborted_together() {
    let mut engine = engine(SchedulerConfig {
        run_ahead: 0,
        ..config()
    });
    let (ids, params) = prompt(5);
    let id = engine
        .add_request(ids, SamplingParams { n: 3, ..params })
        .unwrap();
    for _ in 0..4 {
        block_on(engine.step()).unwrap();
    }
    let ends = engine.abort(id);
    let tokens = ends.iter().map(|e| (e.index, e.metrics.num_output_tokens));
    assert_eq!(tokens.collect::<Vec<_>>(), [(0, 4), (1, 3), (2, 3)]);
    assert!(!engine.has_unfinished_requests());
    engine.scheduler().check_integrity().unwrap();
    assert_eq!(engine.scheduler().kv_cache().num_free_blocks(), 399);
}

#[test]
fn a_failed_step_is_computed_again() {
    let alone = served_alone();
    let mut engine = engine(config());
    let mut answers = BTreeMap::new();
    let (ids, params) = prompt(5);
    let id = engine.add_request(ids, params).unwrap();
    for _ in 0..3 {
        engine.runner_mut().fail_next = true;
        assert!(block_on(engine.step()).is_err());
        let output = block_on(engine.step()).unwrap().remove(0);
        answers
            .entry(id)
            .or_insert_with(Answer::default)
            .take(output);
    }
    drive(&mut engine, &mut answers);
    assert_eq!(answers[&id], alone[5]);
}

#[test]
fn eos_stop_ids_and_lengths_end_a_request() {
    let (ids, params) = prompt(1);
    let free = serve(&mut engine(config()), [1]).remove(0).token_ids;
    let answer = |params: SamplingParams, eos: TokenId, max_model_len| {
        let config = SchedulerConfig {
            max_model_len,
            ..config()
        };
        let mut engine = engine_ending_at(eos, config);
        let id = engine.add_request(ids.clone(), params).unwrap();
        let mut answers = BTreeMap::new();
        drive(&mut engine, &mut answers);
        answers.remove(&id).unwrap()
    };
    let cut = free.iter().position(|t| *t == free[9]).unwrap();
    let stopping = SamplingParams {
        ignore_eos: false,
        ..params.clone()
    };
    let stopped = answer(stopping, free[9], 800);
    assert_eq!(stopped.token_ids, free[..cut]);
    assert_eq!(stopped.finished, Some(Ok(FinishReason::Stop)));
    let ignoring = answer(params.clone(), free[9], 800);
    assert_eq!(ignoring.token_ids, free);
    let stop_id = SamplingParams {
        stop_token_ids: vec![free[9]],
        ..params.clone()
    };
    assert_eq!(answer(stop_id, EOS, 800), stopped);
    let short = answer(params, EOS, 5 + 20);
    assert_eq!(short.token_ids, free[..20]);
    assert_eq!(short.finished, Some(Ok(FinishReason::Length)));
}

#[test]
fn aborting_one_leaves_the_others_alone() {
    let alone = served_alone();
    let mut engine = engine(config());
    let mut answers = BTreeMap::new();
    let ids: Vec<_> = (0..3)
        .map(|i| engine.add_request(prompt(i).0, prompt(i).1).unwrap())
        .collect();
    for _ in 0..5 {
        for output in block_on(engine.step()).unwrap() {
            answers
                .entry(output.request_id)
                .or_insert_with(Answer::default)
                .take(output);
        }
    }
    let end = engine.abort(ids[1]).remove(0);
    assert_eq!(end.finished, Some(Ok(FinishReason::Abort)));
    assert_eq!(end.metrics.num_output_tokens, 5);
    assert_eq!(engine.abort(ids[1]), []);
    drive(&mut engine, &mut answers);
    assert_eq!(answers[&ids[0]], alone[0]);
    assert_eq!(answers[&ids[1]].token_ids, alone[1].token_ids[..5]);
    assert_eq!(answers[&ids[2]], alone[2]);
}

#[test]
fn generate_answers_in_order_and_keeps_what_is_not_its_own() {
    let alone = served_alone();
    let mut engine = engine(config());
    let (ids, params) = prompt(1);
    let before = engine.add_request(ids, params).unwrap();
    let requests = vec![prompt(2), (vec![], SamplingParams::default()), prompt(0)];
    let got = block_on(engine.generate(requests)).unwrap();
    assert_eq!(got[1], Err(RequestError::EmptyPrompt));
    for (answer, index) in [(&got[0], 2), (&got[2], 0)] {
        let answer = answer.as_ref().unwrap();
        assert_eq!(answer.prompt_token_ids, prompt(index).0);
        assert_eq!(answer.token_ids, alone[index].token_ids);
        assert_eq!(answer.logprobs, alone[index].logprobs);
        assert_eq!(answer.prompt_logprobs, alone[index].prompt_logprobs);
        assert_eq!(answer.finish_reason, Some(FinishReason::Length));
        assert_eq!(answer.metrics.num_output_tokens, 60);
    }
    let mut answers = BTreeMap::new();
    drive(&mut engine, &mut answers);
    assert_eq!(answers[&before], alone[1]);

    engine.runner_mut().fail_next = true;
    assert!(block_on(engine.generate(vec![prompt(0)])).is_err());
    assert!(!engine.has_unfinished_requests());
}

/// Half a block a sequence is unused on average: little of sequences of hundreds of tokens.
#[test]
fn waste_and_prefix_hits_are_counted() {
    let mut engine = engine(SchedulerConfig {
        enable_prefix_caching: true,
        ..config()
    });
    assert_eq!(engine.kv_slot_seconds().waste(), None);
    serve(&mut engine, [7]);
    let held = engine.kv_slot_seconds();
    // One step of the whole prompt, then one a token; a step takes 10 ms.
    let tokens = (700..760).map(|n: usize| (n.next_multiple_of(16), n));
    let [slots, used] = tokens.fold([0, 0], |[s, u], (slots, n)| [s + slots, u + n]);
    let close = |a: f64, b: usize| (a - 0.01 * b as f64).abs() < 1e-6;
    assert!(close(held.allocated, slots), "{held:?}");
    assert!(close(held.unused, slots - used), "{held:?}");
    serve(&mut engine, [7, 5]);
    let waste = engine.kv_slot_seconds().waste().unwrap();
    assert!(waste > 0.0 && waste < 0.04, "{waste}");
    let metrics = engine.scheduler().cache_metrics();
    assert_eq!(metrics.prefix_cache_queries, 700 + 700 + 33);
    assert_eq!(metrics.prefix_cache_hits, 43 * 16);
}

#[test]
fn times_come_from_the_clock() {
    let mut engine = engine(SchedulerConfig {
        max_prefill_chunk: Some(64),
        ..config()
    });
    engine.clock().advance(Duration::from_millis(3));
    let (ids, params) = prompt(6);
    engine.add_request(ids, params).unwrap();
    let mut last = None;
    while engine.has_unfinished_requests() {
        last = block_on(engine.step()).unwrap().pop().or(last);
    }
    let metrics = last.unwrap().metrics;
    // 129 tokens are three chunks of 10 ms; each later token is a step of its own.
    assert_eq!(metrics.ttft(), Some(Duration::from_millis(30)));
    assert_eq!(metrics.tpot(), Some(Duration::from_millis(10)));
    assert_eq!(metrics.num_output_tokens, 60);
}

#[test]
fn bad_requests_are_refused_by_name() {
    let mut engine = engine(config());
    let mut refuse = |ids: Vec<TokenId>, params: SamplingParams| {
        engine.add_request(ids, params).unwrap_err().to_string()
    };
    let ok = SamplingParams::default();
    assert!(refuse(vec![], ok.clone()).contains("no tokens"));
    assert!(refuse(vec![5, 997], ok.clone()).contains("the prompt holds token id 997"));
    assert!(refuse(vec![5; 800], ok.clone()).contains("800 tokens"));
    for temperature in [f32::NAN, -1.0, f32::INFINITY, 1e-40] {
        let params = SamplingParams {
            temperature,
            ..ok.clone()
        };
        assert!(refuse(vec![5], params).starts_with("temperature is"));
    }
    let params = SamplingParams {
        stop_token_ids: vec![1000],
        ..ok.clone()
    };
    assert!(refuse(vec![5], params).contains("stop_token_ids"));
    for n in [0, 129] {
        let params = SamplingParams { n, ..ok.clone() };
        assert!(refuse(vec![5], params).starts_with("n is"));
    }
    let params = SamplingParams {
        logprobs: Some(998),
        ..ok
    };
    assert!(refuse(vec![5], params).starts_with("logprobs is 998"));
    assert!(!engine.has_unfinished_requests());
}

#[test]
fn a_context_beyond_the_model_is_refused() {
    let clock = ManualClock::default();
    let runner = PagedHash::new(&config(), clock.clone());
    let config = SchedulerConfig {
        max_model_len: 1025,
        ..config()
    };
    let refused = EngineCore::new(runner, clock, &model(), config).err();
    assert!(matches!(refused, Some(ConfigError::BeyondModel { .. })));
}
