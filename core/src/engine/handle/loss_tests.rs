//! Lost devices, failed steps and faults under a handle. Knows no thread: one poll after the other.

use super::fake_engine::*;
use super::{Health, StreamError, SubmitError, Turn};
use pollster::block_on;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn a_lost_device_changes_no_answer() {
    let expected = plain();
    let none = BTreeSet::new;
    let one = |k| BTreeSet::from([k]);
    let launched = (0..30).map(|k| (one(k), none(), 0));
    let unread = (0..30).map(|k| (none(), one(k), 0));
    let several = [
        (BTreeSet::from([3, 4]), none(), 0),
        (BTreeSet::from([3, 9, 10, 11]), one(12), 0),
        (BTreeSet::from([0, 1, 2]), none(), 2),
        (one(7), none(), 4),
    ];
    for (lost_at, lost_unread, no_device) in launched.chain(unread).chain(several) {
        let losses = lost_at.len() + lost_unread.len();
        let fate = SharedFate::default();
        fate.borrow_mut().lost_at = lost_at.clone();
        fate.borrow_mut().lost_unread = lost_unread.clone();
        fate.borrow_mut().no_device = no_device;
        let (mut driver, handle) = engine(&fate);
        let mut streams: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
        let answers = use_up(&mut driver, &mut streams);
        assert_eq!(
            answers, expected,
            "lost in steps {lost_at:?} {lost_unread:?}"
        );
        assert_eq!(handle.load().num_recoveries, losses);
        assert_eq!(handle.health(), Health::Ready);
        assert_eq!(fate.borrow().num_released, losses);
        if (losses, no_device) == (1, 4) {
            let waits = fate.borrow().waits.clone();
            assert_eq!(waits, [250, 500, 1000, 2000].map(Duration::from_millis));
        }
        assert_eq!(free_blocks(&driver), 32);
    }
}

#[test]
fn an_engine_without_handles_goes_on_too() {
    let expected = plain();
    let fate = SharedFate::default();
    fate.borrow_mut().lost_at = BTreeSet::from([2, 5]);
    let mut llm = llm(&fate);
    for index in 0..6 {
        let (prompt, params) = request(index);
        llm.add_request(prompt, params).unwrap();
    }
    let mut answers: Vec<_> = (0..6).map(|_| Answer::default()).collect();
    while llm.has_unfinished_requests() {
        for output in block_on(llm.step()).unwrap() {
            answers[output.output.request_id.0 as usize].take(output);
        }
    }
    assert_eq!(answers, expected);
}

/// Nothing is aborted and asked again: the requests are the same, and so is what is counted.
#[test]
fn a_call_for_several_answers_goes_on_too() {
    let expected = plain();
    let fate = SharedFate::default();
    fate.borrow_mut().lost_at = BTreeSet::from([2, 5]);
    fate.borrow_mut().lost_unread = BTreeSet::from([9]);
    let mut llm = llm(&fate);
    let answers = block_on(llm.generate((0..6).map(request).collect())).unwrap();
    for (answer, expected) in answers.into_iter().zip(expected) {
        let answer = answer.unwrap();
        assert_eq!(answer.completion.token_ids, expected.ids);
        assert_eq!(answer.text, expected.text);
    }
    assert_eq!(fate.borrow().num_released, 3);
    assert_eq!(llm.core().metrics().num_within_slo(), 6);
}

#[test]
fn without_another_device_a_call_says_so_and_leaves_nothing() {
    let fate = SharedFate::default();
    fate.borrow_mut().lost_at = BTreeSet::from([4]);
    fate.borrow_mut().no_device = 5;
    let mut llm = llm(&fate);
    let error = block_on(llm.generate((0..6).map(request).collect())).unwrap_err();
    assert!(error.to_string().contains("5 attempts"), "{error}");
    assert!(!llm.has_unfinished_requests());
}

#[test]
fn without_another_device_every_stream_says_so() {
    for (no_device, lost_at) in [(5, BTreeSet::from([4])), (0, (4..20).collect())] {
        let fate = SharedFate::default();
        fate.borrow_mut().lost_at = lost_at;
        fate.borrow_mut().no_device = no_device;
        let (mut driver, handle) = engine(&fate);
        let mut streams: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
        while block_on(driver.turn()) == Turn::Stepped {}
        for stream in &mut streams {
            let last = read(stream).unwrap().pop().unwrap().unwrap_err();
            assert!(matches!(last, StreamError::DeviceLost(_)), "{last}");
            assert!(last.to_string().contains("5 attempts"), "{last}");
            assert!(read(stream).is_none());
        }
        assert_eq!(ends(&driver), [0, 0, 0, 6]);
        assert_eq!(handle.health(), Health::Failed);
        let (prompt, params) = request(0);
        let refused = handle.submit(prompt, params).unwrap_err();
        assert!(matches!(
            refused,
            SubmitError::Closed(StreamError::DeviceLost(_))
        ));
        assert!(block_on(handle.closed()).is_err());
        assert!(block_on(driver.run()).is_err());
    }
}

#[test]
fn a_step_that_fails_ends_those_that_took_part() {
    let expected = plain();
    let fate = SharedFate::default();
    fate.borrow_mut().fails_at = Some(2);
    let (mut driver, handle) = engine(&fate);
    let mut streams: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
    for _ in 0..3 {
        block_on(driver.turn());
    }
    for stream in &mut streams[..4] {
        let last = read(stream).unwrap().pop().unwrap().unwrap_err();
        assert!(matches!(last, StreamError::StepFailed(_)), "{last}");
    }
    let answers = use_up(&mut driver, &mut streams[4..]);
    assert_eq!(answers, expected[4..]);
    assert_eq!(handle.health(), Health::Ready);
    assert_eq!(ends(&driver), [0, 2, 0, 4]);
    // Those that come later are answered as if nothing had been.
    let mut later: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
    assert_eq!(use_up(&mut driver, &mut later), expected);
    assert_eq!(free_blocks(&driver), 32);
}

#[test]
fn a_panic_and_a_dropped_driver_leave_nobody_waiting() {
    let fate = SharedFate::default();
    fate.borrow_mut().panics_at = Some(3);
    let (mut driver, handle) = engine(&fate);
    let mut streams: Vec<_> = (0..6).map(|index| submit(&handle, index)).collect();
    let caught = catch_unwind(AssertUnwindSafe(|| block_on(driver.run())));
    assert!(caught.is_err());
    driver.fail("a fault of a test".into());
    for stream in &mut streams {
        let last = read(stream).unwrap().pop().unwrap().unwrap_err();
        assert!(matches!(last, StreamError::Panicked(_)), "{last}");
    }
    assert_eq!(ends(&driver), [0, 0, 0, 6]);
    assert_eq!(handle.health(), Health::Failed);

    let (driver, handle) = engine(&SharedFate::default());
    let mut stream = submit(&handle, 0);
    drop(driver);
    let last = read(&mut stream).unwrap().pop().unwrap().unwrap_err();
    assert!(matches!(last, StreamError::Gone), "{last}");
    let (prompt, params) = request(0);
    let refused = handle.submit(prompt, params).unwrap_err();
    assert!(matches!(refused, SubmitError::Closed(StreamError::Gone)));
}
