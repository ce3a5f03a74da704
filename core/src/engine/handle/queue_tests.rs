//! The queue of a handle: who counts in it, and who finds no place. Knows no thread: one poll after the other.

use super::fake_engine::*;
use super::{EngineHandle, SubmitError, Turn};
use crate::types::SamplingParams;
use pollster::block_on;

#[test]
fn a_full_queue_says_how_full() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let mut streams: Vec<_> = (0..8).map(|index| submit(&handle, index % 6)).collect();
    let (prompt, params) = request(0);
    let refused = handle.submit(prompt, params).unwrap_err();
    let SubmitError::QueueFull {
        waiting,
        max_waiting,
    } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((waiting, max_waiting), (4, 4));
    use_up(&mut driver, &mut streams);
    submit(&handle, 0);
}

#[test]
fn who_does_not_read_fills_no_queue() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let load = |handle: &EngineHandle| (handle.load().num_requests, handle.load().num_unread);
    let mut unread: Vec<_> = (0..8).map(|index| submit(&handle, index % 6)).collect();
    while block_on(driver.turn()) == Turn::Stepped {}
    assert_eq!(load(&handle), (8, 8));
    // There is room for as many again, and then for no more.
    let mut read_ones: Vec<_> = (0..8).map(|index| submit(&handle, index % 6)).collect();
    let (prompt, params) = request(0);
    assert!(matches!(
        handle.submit(prompt, params),
        Err(SubmitError::QueueFull { waiting: 4, .. })
    ));
    use_up(&mut driver, &mut read_ones);
    assert_eq!(load(&handle), (8, 8));
    // Who reads again counts again; who goes counts no more.
    assert!(read(&mut unread[0]).is_some());
    unread.pop();
    assert_eq!(block_on(driver.turn()), Turn::Stepped);
    assert_eq!(load(&handle), (7, 6));
    use_up(&mut driver, &mut unread);
    assert_eq!(load(&handle), (0, 0));
}

/// A request is as many sequences as it has answers, and each of them runs or waits.
#[test]
fn what_waits_is_counted_by_itself() {
    let (mut driver, handle) = engine(&SharedFate::default());
    let load = |handle: &EngineHandle| {
        let load = handle.load();
        (load.num_requests, load.num_running, load.num_waiting)
    };
    let (prompt, params) = request(0);
    let several = SamplingParams { n: 4, ..params };
    let mut streams = vec![handle.submit(prompt, several).unwrap()];
    assert_eq!(load(&handle), (1, 0, 4));
    assert_eq!(block_on(driver.turn()), Turn::Stepped);
    streams.extend((0..3).map(|index| submit(&handle, index)));
    assert_eq!(load(&handle), (4, 4, 3));
    assert!(read(&mut streams[0]).is_some());
    assert_eq!(block_on(driver.turn()), Turn::Stepped);
    assert_eq!(load(&handle), (4, 4, 3));
    drop(streams);
    assert_eq!(block_on(driver.turn()), Turn::Idle);
    assert_eq!(load(&handle), (0, 0, 0));
}
