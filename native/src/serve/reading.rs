//! Reading of requests: JSON, templates and tokens, and writing of long answers, on threads of their own, as each takes
//! a core. Who brings or asks much waits for others that do, and who brings little passes beside them, as does who is
//! answered. Knows not what is read or written.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::api_error::ApiError;

/// Most bytes of a body that is read, or of an answer that is written, in no time worth waiting for.
pub const SHORT: usize = 64 << 10;

/// The lanes, each in the order of those who came. Who goes while it waits is not read.
#[derive(Clone, Debug)]
pub struct Reading {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// As wide as the long one.
    writing: Arc<Semaphore>,
}

impl Reading {
    /// Reads on a host with so many cores, of which long bodies leave one free where there are several.
    pub fn new(cores: usize) -> Self {
        let (short, long) = lanes(cores);
        Self {
            short: Arc::new(Semaphore::new(short)),
            long: Arc::new(Semaphore::new(long)),
            writing: Arc::new(Semaphore::new(long)),
        }
    }

    /// Most threads it uses at once. With as many for it alone, what has begun to read never waits for one.
    pub fn max_threads(cores: usize) -> usize {
        let (short, long) = lanes(cores);
        short + 2 * long
    }

    /// Does what a body of so many bytes takes, once it is its turn. Dropped before that, it is never done.
    ///
    /// # Errors
    /// It met a fault.
    pub async fn run<T: Send + 'static>(
        &self,
        length: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match length <= SHORT {
            true => Self::take(&self.short, work).await,
            false => self.run_long(work).await,
        }
    }

    /// Does what may take long whatever the body's length.
    ///
    /// # Errors
    /// It met a fault.
    pub async fn run_long<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        Self::take(&self.long, work).await
    }

    /// Writes what is long, and was computed already: that is to wait for nobody who only asks.
    ///
    /// # Errors
    /// It met a fault.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        Self::take(&self.writing, work).await
    }

    async fn take<T: Send + 'static>(
        lane: &Arc<Semaphore>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(lane).acquire_owned().await;
        let turn = turn.map_err(|_| ApiError::fault())?;
        // Dropped, the set takes back what has not begun.
        let mut tasks = JoinSet::new();
        tasks.spawn_blocking(move || {
            let done = work();
            // It is the next one's when this has ended, whether anybody waits for it or not.
            drop(turn);
            done
        });
        match tasks.join_next().await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) | None => Err(ApiError::fault()),
        }
    }
}

/// How many read at once, what is short and what is long.
fn lanes(cores: usize) -> (usize, usize) {
    (cores.max(1), cores.saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LONG: usize = SHORT + 1;

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.max_blocking_threads(threads).build().unwrap()
    }

    fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_brings_little_passes_those_who_bring_much() {
        for cores in [1, 2, 4] {
            let reading = Reading::new(cores);
            runtime(Reading::max_threads(cores)).block_on(async {
                let many = 24;
                let (open, gate) = mpsc::channel::<()>();
                let gate = Arc::new(std::sync::Mutex::new(gate));
                let read = Arc::new(AtomicUsize::new(0));
                let mut long = JoinSet::new();
                for _ in 0..many {
                    let (reading, gate, read) = (reading.clone(), gate.clone(), read.clone());
                    long.spawn(async move {
                        let work = move || {
                            gate.lock().unwrap().recv().unwrap();
                            read.fetch_add(1, Ordering::Relaxed);
                        };
                        reading.run(LONG, work).await
                    });
                }
                while reading.long.available_permits() > 0 {
                    tokio::task::yield_now().await;
                }
                for length in [0, SHORT] {
                    assert_eq!(reading.run(length, || 7).await, Ok(7));
                }
                assert_eq!(read.load(Ordering::Relaxed), 0);
                (0..many).for_each(|_| open.send(()).unwrap());
                while let Some(done) = long.join_next().await {
                    done.unwrap().unwrap();
                }
                assert_eq!(read.load(Ordering::Relaxed), many);
            });
        }
    }

    #[test]
    fn who_went_before_its_turn_is_not_read() {
        let reading = Reading::new(1);
        runtime(1).block_on(async {
            let (open, gate) = mpsc::channel::<()>();
            let read = Arc::new(AtomicUsize::new(0));
            let count = || {
                let read = Arc::clone(&read);
                move || {
                    read.fetch_add(1, Ordering::Relaxed);
                }
            };
            let holder = reading.clone();
            let held = tokio::spawn(async move { holder.run(LONG, move || gate.recv()).await });
            while reading.long.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            // One waits for its turn, another has it and waits for a thread, of which there is but one.
            assert_eq!(poll_once(reading.run(LONG, count())), None);
            assert_eq!(poll_once(reading.run(0, count())), None);
            open.send(()).unwrap();
            held.await.unwrap().unwrap().unwrap();
            for length in [LONG, 0] {
                reading.run(length, count()).await.unwrap();
            }
            assert_eq!(read.load(Ordering::Relaxed), 2);
        });
    }

    #[test]
    fn a_fault_is_said_and_gives_the_turn_back() {
        let reading = Reading::new(1);
        runtime(2).block_on(async {
            for length in [0, LONG] {
                let met = reading.run(length, || panic!("a fault of a test")).await;
                assert_eq!(met.unwrap_err().status.as_u16(), 500);
                assert_eq!(reading.run(length, || 7).await, Ok(7));
            }
        });
    }
}
