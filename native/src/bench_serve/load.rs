//! Sends the requests of a run: so many at a time, or each at its time. Owns the threads; knows no
//! protocol and no statistics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::stream::Streamed;
use super::workload::Job;

/// Most requests that can be under way: one thread each.
pub const MAX_UNDER_WAY: usize = 4096;
/// Stack of such a thread, bytes.
const STACK: usize = 256 << 10;
/// Between two looks whether to stop, while a request's time has not come.
const NAP: Duration = Duration::from_millis(20);

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was due: its time, or when it was sent.
    pub start: Instant,
    /// When it was over.
    pub end: Instant,
    /// Its answer, or why there is none.
    pub answer: Result<Streamed, String>,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Run {
    /// When it began.
    pub start: Instant,
    /// Of the requests that were sent, in their order.
    pub records: Vec<Record>,
}

/// Sends requests so many at a time; `stop` leaves out those that were not sent yet.
pub fn closed(
    jobs: &[Job],
    concurrency: usize,
    send: impl Fn(&Job) -> Result<Streamed, String> + Sync,
    stop: impl Fn() -> bool + Sync,
) -> Run {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let records = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..concurrency.min(jobs.len()) {
            let worker = || {
                while !stop() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else {
                        return;
                    };
                    let record = record(Instant::now(), job, &send);
                    push(&records, index, record);
                }
            };
            let spawned = thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, worker);
            if spawned.is_err() {
                break;
            }
        }
    });
    Run {
        start,
        records: in_order(records),
    }
}

/// Sends each request at its time, but where `most` are under way, as soon as there are fewer; their times go on from
/// when they were due.
pub fn open(
    jobs: &[Job],
    most: usize,
    send: impl Fn(&Job) -> Result<Streamed, String> + Sync,
    stop: impl Fn() -> bool + Sync,
) -> Run {
    let start = Instant::now();
    let under_way = UnderWay::default();
    let records = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (index, job) in jobs.iter().enumerate() {
            let due = start + Duration::from_secs_f64(job.due.unwrap_or(0.0));
            loop {
                if stop() {
                    return;
                }
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() && under_way.begin(most, NAP) {
                    break;
                }
                thread::sleep(left.min(NAP));
            }
            let (records, send, under_way) = (&records, &send, &under_way);
            let worker = move || {
                push(records, index, record(due, job, send));
                under_way.end();
            };
            let builder = thread::Builder::new().stack_size(STACK);
            if let Err(error) = builder.spawn_scoped(scope, worker) {
                under_way.end();
                let failed = Record {
                    start: due,
                    end: Instant::now(),
                    answer: Err(format!("no thread to send it: {error}")),
                };
                push(records, index, failed);
            }
        }
    });
    Run {
        start,
        records: in_order(records),
    }
}

/// Requests under way.
#[derive(Default)]
struct UnderWay {
    count: Mutex<usize>,
    ended: Condvar,
}

impl UnderWay {
    /// One more, if there are fewer than `most`, or are soon.
    fn begin(&self, most: usize, patience: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |count: &mut usize| *count >= most;
        let waited = self.ended.wait_timeout_while(count, patience, is_full);
        let (mut count, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            *count += 1;
        }
        !waited.timed_out()
    }

    /// One fewer.
    fn end(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_one();
    }
}

fn record(start: Instant, job: &Job, send: &impl Fn(&Job) -> Result<Streamed, String>) -> Record {
    let answer = send(job);
    let last = answer
        .as_ref()
        .ok()
        .and_then(|answer| answer.times.last().copied());
    Record {
        start,
        end: last.unwrap_or_else(Instant::now),
        answer,
    }
}

type Numbered = Mutex<Vec<(usize, Record)>>;

fn push(records: &Numbered, index: usize, record: Record) {
    let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.push((index, record));
}

fn in_order(records: Numbered) -> Vec<Record> {
    let records = records.into_inner();
    let mut records = records.unwrap_or_else(PoisonError::into_inner);
    records.sort_by_key(|(index, _)| *index);
    records.into_iter().map(|(_, record)| record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn jobs(n: usize, due: impl Fn(usize) -> Option<f64>) -> Vec<Job> {
        let job = |index: usize| Job {
            prompt: index.into(),
            max_tokens: 1,
            due: due(index),
        };
        (0..n).map(job).collect()
    }

    /// An answer that takes 20 ms, and the most that were under way.
    fn send<'a>(
        now: &'a AtomicUsize,
        most: &'a AtomicUsize,
    ) -> impl Fn(&Job) -> Result<Streamed, String> + Sync + 'a {
        |job| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            now.fetch_sub(1, Ordering::SeqCst);
            Err(job.prompt.to_string())
        }
    }

    fn said(run: &Run) -> Vec<String> {
        run.records
            .iter()
            .map(|r| r.answer.clone().unwrap_err())
            .collect()
    }

    #[test]
    fn a_closed_loop_keeps_so_many_under_way() {
        let (now, most) = Default::default();
        let run = closed(&jobs(9, |_| None), 3, send(&now, &most), || false);
        assert_eq!(most.into_inner(), 3);
        let expected: Vec<String> = (0..9).map(|n: usize| n.to_string()).collect();
        assert_eq!(said(&run), expected);
    }

    #[test]
    fn an_open_loop_sends_each_at_its_time_and_stops_when_told() {
        let (now, most) = Default::default();
        let run = open(&jobs(6, |_| Some(0.03)), 99, send(&now, &most), || false);
        assert!(most.into_inner() > 3);
        for record in &run.records {
            assert_eq!(record.start - run.start, Duration::from_secs_f64(0.03));
            assert!(record.end >= record.start + Duration::from_millis(20));
        }
        let (now, most, stop) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicBool::new(false),
        );
        let first = send(&now, &most);
        let stopping = |job: &Job| {
            stop.store(true, Ordering::SeqCst);
            first(job)
        };
        let due = |n| Some(n as f64 * 60.0);
        let run = open(&jobs(3, due), 99, stopping, || stop.load(Ordering::SeqCst));
        assert_eq!(said(&run), ["0"]);
    }

    #[test]
    fn past_the_most_under_way_requests_are_late_and_count_as_due() {
        let (now, most) = Default::default();
        let run = open(&jobs(6, |_| Some(0.0)), 2, send(&now, &most), || false);
        assert_eq!(most.into_inner(), 2);
        assert!(run.records.iter().all(|record| record.start == run.start));
        let last = run.records.iter().map(|record| record.end).max();
        assert!(last.unwrap() - run.start >= Duration::from_millis(60));
    }
}
