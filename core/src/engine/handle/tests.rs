//! Handles and their driver: streams, bounds and endings. Knows no thread: one poll after the other.

use super::fake_engine::*;
use super::mailbox::Mailbox;
use super::submission::Wish;
use super::{EngineHandle, HandleOptions, Health, StreamError, SubmitError, Turn};
use crate::engine::{EngineOutput, Prompt, RequestMetrics, RequestOutput};
use crate::error::Error;
use crate::sched::{Ahead, RequestError};
use crate::types::{FinishReason, SamplingParams, StopReason, TokenId};
use pollster::block_on;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[test]
fn streams_bring_what_the_engine_does() {
    const { assert!(size_of::<EngineHandle>() <= 16) };
    fn is_send<T: Send + Sync>(_: &T) {}
    let expected = plain();
    let (mut driver, handle) = engine(&SharedFate::default());
    let mut streams: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
    is_send(&handle);
    is_send(&streams);
    assert_eq!(handle.load().num_requests, 6);
    assert_eq!(use_up(&mut driver, &mut streams), expected);
    assert!(streams.iter_mut().all(|s| read(s).is_none()));
    assert_eq!(handle.load().num_requests, 0);
    // Nothing was read until all had been said: the same, in one piece.
    let mut late: Vec<_> = (4..6).map(|index| submit(&handle, index)).collect();
    let mut pieces = 0;
    let mut answers: Vec<_> = late.iter().map(|_| Answer::default()).collect();
    while answers.iter().any(|a| a.finished.is_none()) {
        while block_on(driver.turn()) == Turn::Stepped {}
        for (stream, answer) in late.iter_mut().zip(&mut answers) {
            for piece in read(stream).into_iter().flatten() {
                answer.take(piece.unwrap());
                pieces += 1;
            }
        }
    }
    assert_eq!(answers, expected[4..]);
    assert!(pieces < 10, "{pieces} pieces");
    assert_eq!(free_blocks(&driver), 32);
}

#[test]
fn several_answers_share_a_stream() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let (prompt, params) = request(2);
    let several = SamplingParams { n: 3, ..params };
    let mut stream = handle.submit(prompt, several).unwrap();
    let mut ended = BTreeSet::new();
    loop {
        let turn = block_on(driver.turn());
        for piece in read(&mut stream).into_iter().flatten() {
            let output = piece.unwrap().output;
            assert_eq!(output.request_id, stream.id());
            if output.finished.is_some() {
                assert!(ended.insert(output.index));
            }
        }
        if turn != Turn::Stepped {
            break;
        }
    }
    assert_eq!(ended, BTreeSet::from([0, 1, 2]));
    assert!(read(&mut stream).is_none());
}

#[test]
fn whoever_goes_frees_what_it_held() {
    let expected = plain();
    for moment in 0..12 {
        for drops in [true, false] {
            let (mut driver, handle) = engine(&SharedFate::default());
            let mut streams: Vec<_> = (0..4).map(|index| submit(&handle, index)).collect();
            let mut answers: Vec<_> = streams.iter().map(|_| Answer::default()).collect();
            for _ in 0..moment {
                block_on(driver.turn());
                for (stream, answer) in streams.iter_mut().zip(&mut answers) {
                    for piece in read(stream).into_iter().flatten() {
                        answer.take(piece.unwrap());
                    }
                }
            }
            let mut gone = streams.remove(3);
            let mut its = answers.remove(3);
            if drops {
                drop(gone);
            } else {
                handle.abort(gone.id());
                handle.abort(gone.id());
                block_on(driver.turn());
                for piece in read(&mut gone).into_iter().flatten() {
                    its.take(piece.unwrap());
                }
                assert_eq!(its.finished, Some(FinishReason::Abort));
                assert_eq!(its.ids, expected[3].ids[..its.ids.len()]);
                assert!(read(&mut gone).is_none());
            }
            block_on(driver.turn());
            assert_eq!(handle.load().num_requests, 3);
            let unfinished = driver.engine().core().scheduler().num_unfinished_requests();
            assert_eq!(unfinished, 3, "moment {moment}");
            loop {
                let turn = block_on(driver.turn());
                for (stream, answer) in streams.iter_mut().zip(&mut answers) {
                    for piece in read(stream).into_iter().flatten() {
                        answer.take(piece.unwrap());
                    }
                }
                if turn != Turn::Stepped {
                    break;
                }
            }
            assert_eq!(answers, expected[..3], "moment {moment}");
            assert_eq!(free_blocks(&driver), 32);
        }
    }
}

/// Nobody reads the first streams: they stand still, hold nothing and take nobody's seat, while all
/// others come at the pace they always have; read at last, they say what they always do.
#[test]
fn a_slow_reader_stops_only_itself() {
    let expected = plain();
    for (n, ends) in [(1, None), (1, Some(false)), (2, None), (2, Some(true))] {
        let fate = SharedFate::default();
        let steps = |fate: &SharedFate| fate.borrow().steps;
        let (mut driver, handle) = engine(&fate);
        let mut slow: Vec<_> = (0..4)
            .map(|index| {
                let (prompt, params) = request(index);
                handle
                    .submit(prompt, SamplingParams { n, ..params })
                    .unwrap()
            })
            .collect();
        while block_on(driver.turn()) == Turn::Stepped {}
        assert_eq!(free_blocks(&driver), 32);
        assert_eq!(handle.load().num_requests, 4);
        let mut fast: Vec<_> = (4..6).map(|index| submit(&handle, index)).collect();
        let before = steps(&fate);
        assert_eq!(use_up(&mut driver, &mut fast), expected[4..]);
        // Each a token a step, as if they were alone.
        let longest = expected[5].ids.len();
        assert_eq!(steps(&fate) - before, longest);
        match ends {
            Some(true) => {
                handle.stop();
                assert_eq!(block_on(driver.turn()), Turn::Ended);
                for stream in &mut slow {
                    for piece in read(stream).unwrap() {
                        let finished = piece.unwrap().output.finished;
                        assert_eq!(finished, Some(Ok(FinishReason::Abort)));
                    }
                }
                continue;
            }
            // It goes on until the last is read.
            Some(false) => handle.drain(),
            None => {}
        }
        assert_eq!(block_on(driver.turn()), Turn::Idle);
        let mut answers: Vec<_> = slow.iter().map(|_| Answer::default()).collect();
        for _ in 0..40 {
            for (stream, answer) in slow.iter_mut().zip(&mut answers) {
                for piece in read(stream).into_iter().flatten() {
                    let piece = piece.unwrap();
                    assert!(piece.output.token_ids.len() <= 8 + n);
                    if piece.output.index == 0 {
                        let counted = piece.output.metrics.num_output_tokens;
                        answer.take(piece);
                        assert_eq!(counted, answer.ids.len());
                    }
                }
            }
            while block_on(driver.turn()) == Turn::Stepped {}
            driver
                .engine()
                .core()
                .scheduler()
                .check_integrity()
                .unwrap();
        }
        assert_eq!(answers, expected[..4]);
        assert!(slow.iter_mut().all(|stream| read(stream).is_none()));
        assert_eq!(handle.load().num_requests, 0);
        let last = block_on(driver.turn());
        assert_eq!(last == Turn::Ended, ends.is_some());
        assert_eq!(free_blocks(&driver), 32);
    }
}

/// A reader that reads between two answers' pieces of one step does not make the stream forget that its
/// request was stopped.
/// Who comes during a step waits for its end, and that counts.
#[test]
fn a_request_came_when_it_was_handed_in() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let clock = driver.engine().core().clock().clone();
    clock.advance(Duration::from_secs(7));
    let mut stream = submit(&handle, 0);
    clock.advance(Duration::from_secs(5));
    block_on(driver.turn());
    let first = read(&mut stream).unwrap().remove(0).unwrap();
    let times = first.output.metrics;
    assert_eq!(times.arrival, Duration::from_secs(7));
    assert_eq!(times.queue(), Some(Duration::from_secs(5)));
    assert!(times.ttft() >= Some(Duration::from_secs(5)));
}

#[test]
fn a_read_between_two_pieces_of_a_step_is_no_lost_wake_up() {
    let options = HandleOptions {
        max_waiting: 4,
        max_unread_tokens: 8,
    };
    let mailbox = Arc::new(Mailbox::new(options, 4));
    let params = SamplingParams {
        n: 2,
        ..SamplingParams::default()
    };
    let mut stream = mailbox
        .submit(
            vec![1],
            Wish::Answers(Arc::new(params), None),
            None,
            Ahead::default(),
            Duration::ZERO,
        )
        .unwrap();
    let outbox = mailbox.take().submissions.remove(0).unwrap().outbox;
    let piece = |index, num_tokens| RequestOutput {
        output: EngineOutput {
            request_id: stream.id(),
            index,
            token_ids: vec![0; num_tokens],
            logprobs: Vec::new(),
            prompt_logprobs: Vec::new(),
            embedding: None,
            num_cached_tokens: 0,
            finished: None,
            stop_reason: None,
            metrics: RequestMetrics::new(Duration::ZERO),
        },
        text: String::new(),
    };
    let [earlier, one, other] = [piece(1, 3), piece(0, 5), piece(1, 1)];
    assert!(!outbox.push(earlier));
    // The driver pauses the request here.
    assert!(outbox.push(one));
    assert!(block_on(stream.next()).is_some());
    assert!(mailbox.take().reads.is_empty());
    outbox.push(other);
    assert_eq!(read(&mut stream).unwrap().len(), 1);
    assert_eq!(mailbox.take().reads, BTreeSet::from([stream.id()]));
}

#[test]
fn a_late_reader_is_told_the_stop_string() {
    let expected = plain().swap_remove(2);
    let stop = format!("{} ", expected.ids[5]);
    let end = expected.text.find(&stop).unwrap();
    assert!(end > 0, "more than one piece");
    let (mut driver, handle) = engine(&SharedFate::default());
    let (prompt, params) = request(2);
    let params = SamplingParams {
        stop: vec![stop.clone()],
        ..params
    };
    let mut stream = handle.submit(prompt, params).unwrap();
    while block_on(driver.turn()) == Turn::Stepped {}
    let [piece] = &read(&mut stream).unwrap()[..] else {
        panic!("what lies unread is one piece");
    };
    let piece = piece.as_ref().unwrap();
    assert_eq!(piece.text, expected.text[..end]);
    assert_eq!(piece.output.finished, Some(Ok(FinishReason::Stop)));
    assert_eq!(piece.output.stop_reason, Some(StopReason::Text(stop)));
}

#[test]
fn a_paused_request_can_be_given_up() {
    for (way, expected) in [[0, 0, 1, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
        .iter()
        .enumerate()
    {
        let (mut driver, handle) = engine(&SharedFate::default());
        let mut stream = submit(&handle, 3);
        while block_on(driver.turn()) == Turn::Stepped {}
        let kept = read(&mut stream).unwrap();
        assert_eq!(kept.len(), 1);
        while block_on(driver.turn()) == Turn::Stepped {}
        match way {
            0 => drop(stream),
            1 => handle.abort(stream.id()),
            _ => stream.stop(),
        }
        assert_eq!(block_on(driver.turn()), Turn::Idle);
        assert_eq!(handle.load().num_requests, 0);
        assert_eq!(ends(&driver), expected);
    }
}

#[test]
fn what_means_nothing_is_refused_before_it_waits() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let (prompt, params) = request(0);
    let beyond = Prompt::TokenIds(vec![VOCAB as TokenId]);
    let error = handle.submit(beyond, params.clone()).unwrap_err();
    assert!(matches!(error, SubmitError::Refused(_)), "{error}");
    let hot = SamplingParams {
        temperature: -1.0,
        ..params.clone()
    };
    let error = handle.submit(prompt, hot).unwrap_err().to_string();
    assert!(error.starts_with("temperature is"), "{error}");
    // What only the engine can tell comes as the stream's first item.
    let long = Prompt::TokenIds(vec![1; 300]);
    let mut stream = handle.submit(long, params).unwrap();
    assert_eq!(block_on(driver.turn()), Turn::Idle);
    match read(&mut stream).unwrap().remove(0).unwrap_err() {
        StreamError::Refused(error) => assert!(matches!(
            *error,
            Error::Request(RequestError::PromptTooLong { .. })
        )),
        other => panic!("{other}"),
    }
    assert!(read(&mut stream).is_none());
    assert_eq!(handle.load().num_requests, 0);
}

#[test]
fn shutting_down_finishes_or_aborts() {
    let expected = plain();
    for stops in [false, true] {
        let (mut driver, handle) = engine(&SharedFate::default());
        let mut streams: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
        block_on(driver.turn());
        if stops {
            handle.stop();
        } else {
            handle.drain();
        }
        let (prompt, params) = request(0);
        let refused = handle.submit(prompt, params).unwrap_err();
        assert!(matches!(refused, SubmitError::ShuttingDown), "{refused}");
        let answers = use_up(&mut driver, &mut streams);
        for (answer, expected) in answers.iter().zip(&expected) {
            if stops {
                assert_eq!(answer.finished, Some(FinishReason::Abort));
            } else {
                assert_eq!(answer, expected);
            }
        }
        assert_eq!(block_on(driver.run()).map_err(|e| e.to_string()), Ok(()));
        assert_eq!(handle.health(), Health::Stopped);
        block_on(handle.closed()).unwrap();
        assert_eq!(free_blocks(&driver), 32);
    }
}

#[test]
fn the_last_handle_lets_it_end() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let other = handle.clone();
    let stream = submit(&handle, 1);
    drop(handle);
    while block_on(driver.turn()) == Turn::Stepped {}
    drop(other);
    drop(stream);
    assert_eq!(block_on(driver.turn()), Turn::Ended);
}

#[test]
fn an_idle_driver_sleeps_until_asked() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let expected = plain();
    let mut answer = Answer::default();
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut run = std::pin::pin!(driver.run());
        assert!(run.as_mut().poll(&mut context).is_pending());
        let mut stream = submit(&handle, 2);
        while let Some(pieces) = read(&mut stream) {
            for piece in pieces {
                answer.take(piece.unwrap());
            }
            assert!(run.as_mut().poll(&mut context).is_pending());
        }
        handle.stop();
        assert!(matches!(run.poll(&mut context), Poll::Ready(Ok(()))));
    }
    assert_eq!(answer, expected[2]);
}
