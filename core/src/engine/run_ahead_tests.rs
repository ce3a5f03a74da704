//! Steps in flight: the same answers at any depth, whatever ends them, fails or gives way meanwhile.
//! Knows no device.

use super::paged_hash::{
    Answer, Engine, config, drive, engine, engine_ending_at, prompt, serve, served_alone,
};
use crate::engine::paged_hash::model;
use crate::sched::{CostModel, Hardware, ModelShape, SchedulerConfig};
use crate::types::{FinishReason, SamplingParams};
use pollster::block_on;
use std::collections::BTreeMap;
use std::task::{Context, Waker};
use std::time::Duration;

fn ahead(run_ahead: usize) -> SchedulerConfig {
    SchedulerConfig {
        run_ahead,
        ..config()
    }
}

#[test]
fn the_same_answers_at_any_depth() {
    let alone = served_alone();
    for run_ahead in 0..=3 {
        for (num_blocks, enable_prefix_caching, max_num_batched_tokens) in [
            (400, false, 2048),
            (49, false, 70),
            (400, true, 13),
            (49, true, 300),
        ] {
            let mut engine = engine(SchedulerConfig {
                num_blocks,
                enable_prefix_caching,
                max_num_batched_tokens,
                ..ahead(run_ahead)
            });
            // The longest, which needs all blocks there are, comes first.
            let order = [7, 0, 1, 2, 3, 4, 5, 6];
            let answers = serve(&mut engine, order);
            for (index, answer) in order.into_iter().zip(answers) {
                assert_eq!(answer, alone[index], "{run_ahead} ahead, prompt {index}");
            }
            assert_eq!(engine.runner().most_in_flight, run_ahead + 1);
            let preempted = engine.runner().num_preemptions > 0;
            assert!(preempted == (num_blocks == 49) || enable_prefix_caching);
            assert_eq!(engine.scheduler().num_steps_in_flight(), 0);
        }
    }
}

/// What ends at an id that the host sees late, and what may not be drawn before it sees it.
#[test]
fn ends_and_penalties_do_not_depend_on_depth() {
    let free = serve(&mut engine(ahead(0)), [2]).remove(0).token_ids;
    let requests = |engine: &mut Engine| {
        let (ids, params) = prompt(2);
        let stopping = SamplingParams {
            ignore_eos: false,
            ..params
        };
        let penalized = SamplingParams {
            presence_penalty: 0.5,
            ..stopping.clone()
        };
        let of_several = SamplingParams {
            n: 3,
            min_tokens: 2,
            ..stopping.clone()
        };
        for params in [stopping, penalized, of_several] {
            engine.add_request(ids.clone(), params).expect("fits");
        }
        let mut answers = BTreeMap::<_, Answer>::new();
        while engine.has_unfinished_requests() {
            for output in block_on(engine.step()).expect("no failure") {
                let its = (output.request_id, output.index);
                answers.entry(its).or_default().take(output);
            }
            engine.scheduler().check_integrity().expect("sound");
        }
        let kv = engine.scheduler().kv_cache();
        assert_eq!(kv.num_free_blocks(), kv.num_usable_blocks());
        answers
    };
    let expected = requests(&mut engine_ending_at(free[9], ahead(0)));
    let first = expected.values().next().expect("an answer");
    assert_eq!(first.finished, Some(Ok(FinishReason::Stop)));
    assert!(!first.token_ids.is_empty() && first.token_ids.len() <= 9);
    for run_ahead in 1..=3 {
        // Room for all, and for so few that freed blocks are at once another's.
        for num_blocks in [400, 8] {
            let config = SchedulerConfig {
                num_blocks,
                ..ahead(run_ahead)
            };
            let answers = requests(&mut engine_ending_at(free[9], config));
            assert_eq!(answers, expected, "{run_ahead}, {num_blocks}");
        }
    }
}

/// Steps fail, and futures of steps are dropped, with others in flight: all of them are computed again.
#[test]
fn no_step_in_flight_is_lost() {
    let alone = served_alone();
    for run_ahead in 0..=3 {
        let mut engine = engine(SchedulerConfig {
            num_blocks: 60,
            max_prefill_chunk: Some(64),
            ..ahead(run_ahead)
        });
        let mut answers = BTreeMap::new();
        for index in 0..8 {
            let (ids, params) = prompt(index);
            let id = engine.add_request(ids, params).expect("fits");
            answers.insert(id, Answer::default());
        }
        for step in 0..90 {
            if step % 3 == 1 {
                engine.runner_mut().fail_next = true;
                assert!(block_on(engine.step()).is_err());
                engine.runner_mut().num_in_flight = 0;
                assert_eq!(engine.scheduler().num_steps_in_flight(), 0);
            }
            if step % 3 == 2 {
                engine.runner_mut().late = true;
                let mut step = Box::pin(engine.step());
                assert!(
                    step.as_mut()
                        .poll(&mut Context::from_waker(Waker::noop()))
                        .is_pending()
                );
                drop(step);
                engine.runner_mut().num_in_flight = 0;
            }
            for output in block_on(engine.step()).expect("no failure") {
                let answer = answers.entry(output.request_id).or_default();
                answer.take(output);
            }
            engine.scheduler().check_integrity().expect("sound");
        }
        drive(&mut engine, &mut answers);
        assert_eq!(answers.into_values().collect::<Vec<_>>(), alone);
    }
}

/// The token that a request is aborted at is the last that comes of it, and the steps in flight that
/// go on with it harm nobody who has its blocks by then.
#[test]
fn who_is_aborted_leaves_steps_in_flight() {
    let alone = served_alone();
    for run_ahead in 0..=3 {
        let mut engine = engine(SchedulerConfig {
            num_blocks: 1 + 48,
            ..ahead(run_ahead)
        });
        let add = |engine: &mut Engine, index| {
            let (ids, params) = prompt(index);
            engine.add_request(ids, params).expect("fits")
        };
        let first = add(&mut engine, 7);
        let mut answers = BTreeMap::new();
        for _ in 0..5 {
            for output in block_on(engine.step()).expect("no failure") {
                let answer: &mut Answer = answers.entry(output.request_id).or_default();
                answer.take(output);
            }
        }
        assert_eq!(engine.abort(first).len(), 1);
        let others: Vec<_> = (0..7).map(|index| add(&mut engine, index)).collect();
        drive(&mut engine, &mut answers);
        assert_eq!(answers[&first].token_ids, alone[7].token_ids[..5]);
        for (index, id) in others.iter().enumerate() {
            assert_eq!(
                answers[id], alone[index],
                "{run_ahead} ahead, prompt {index}"
            );
        }
    }
}

/// Steps in flight that nobody waits for end with whoever they were for: who comes much later is not told
/// that they lasted until then.
#[test]
fn a_rest_is_no_part_of_a_step() {
    for run_ahead in 0..=3 {
        let mut engine = engine(ahead(run_ahead));
        let shape = ModelShape::new(&model(), 1 << 20, 2.0);
        let cost = CostModel::new(shape, Hardware::unmeasured(1 << 30));
        engine.set_cost_model(cost, None);
        for _ in 0..2 {
            let (ids, params) = prompt(7);
            let id = engine.add_request(ids, params).expect("fits");
            for _ in 0..5 {
                block_on(engine.step()).expect("no failure");
            }
            engine.abort(id);
            assert_eq!(engine.scheduler().num_steps_in_flight(), 0);
            engine.runner().clock.advance(Duration::from_secs(60));
        }
        let costs = engine.step_costs().expect("set above");
        let took: Vec<f64> = costs.records().map(|r| r.measured).collect();
        assert!(
            took.len() >= 10 && took.iter().all(|&s| s < 0.1),
            "{took:?}"
        );
    }
}

/// A launch that reads logits waits for its own step, and what is in flight is to be timed before.
#[test]
fn nothing_is_in_flight_while_a_prompt_is_scored() {
    let mut engine = engine(SchedulerConfig {
        max_num_batched_tokens: 16,
        ..ahead(1)
    });
    let (_, params) = prompt(0);
    let params = SamplingParams {
        prompt_logprobs: Some(0),
        max_tokens: 8,
        ..params
    };
    engine.add_request((0..64).collect(), params).unwrap();
    for scored in [16, 32, 48] {
        block_on(engine.step()).unwrap();
        assert_eq!(engine.scheduler().num_steps_in_flight(), 0, "{scored}");
    }
    block_on(engine.step()).unwrap();
    block_on(engine.step()).unwrap();
    assert_eq!(engine.scheduler().num_steps_in_flight(), 1);
    assert_eq!(engine.runner().most_in_flight, 2);
}
