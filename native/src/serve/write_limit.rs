//! How long what is written may wait for its client: who stops reading, hardly reads, or is gone without a word, would
//! otherwise keep a connection forever. Knows no connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The least that is to be read in that time while more waits, bytes.
const LEAST: usize = 64 << 10;

/// Whether a client read too little, for all who serve its connection.
#[derive(Clone, Debug, Default)]
pub struct ReadsTooLittle(Arc<AtomicBool>);

impl ReadsTooLittle {
    /// Whether it did, and was given up.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The limit of one connection's writes, which come one after another.
#[derive(Debug)]
pub struct WriteLimit {
    limit: Duration,
    /// Runs while something waits.
    timer: Option<Pin<Box<Sleep>>>,
    /// What was taken since it began, bytes.
    taken: usize,
    is_over: ReadsTooLittle,
}

impl WriteLimit {
    /// Lets what is written wait so long, and tells where it has.
    pub fn new(limit: Duration, is_over: ReadsTooLittle) -> Self {
        Self {
            limit,
            timer: None,
            taken: 0,
            is_over,
        }
    }

    /// What a write came to, or that it has waited long enough. A few bytes that are taken do not end the wait.
    pub fn bound_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(bytes)), Some(_)) = (&written, &self.timer) {
            self.taken = self.taken.saturating_add(*bytes);
            if self.taken < LEAST {
                return written;
            }
        }
        self.bound(cx, written)
    }

    /// What became of all that was written, or that it has waited long enough.
    pub fn bound<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.timer = None;
            self.taken = 0;
            return written;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => {
                timer.as_mut().reset(Instant::now() + limit);
                self.is_over.0.store(true, Ordering::Relaxed);
                let said = "the client reads nothing";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, said)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_no_longer_than_it_may() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let is_over = ReadsTooLittle::default();
        let mut limit = WriteLimit::new(Duration::from_millis(20), is_over.clone());
        let mut wait = |written: fn() -> Poll<io::Result<usize>>| {
            runtime.block_on(std::future::poll_fn(|cx| limit.bound_write(cx, written())))
        };
        assert_eq!(wait(|| Poll::Ready(Ok(3))).unwrap(), 3);
        assert!(!is_over.get());
        let waited = wait(|| Poll::Pending).unwrap_err();
        assert!(is_over.get());
        assert_eq!(waited.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_wait_ends_where_enough_is_taken_and_goes_on_where_little_is() {
        let limit = Duration::from_secs(3600);
        for (taken, goes_on) in [(LEAST - 1, true), (LEAST, false)] {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().build().unwrap().block_on(async {
                let mut writes = WriteLimit::new(limit, ReadsTooLittle::default());
                let cx = &mut Context::from_waker(std::task::Waker::noop());
                assert!(writes.bound_write(cx, Poll::Pending).is_pending());
                for part in [1, taken - 1] {
                    let written = writes.bound_write(cx, Poll::Ready(Ok(part)));
                    assert!(matches!(written, Poll::Ready(Ok(bytes)) if bytes == part));
                }
                assert_eq!(writes.timer.is_some(), goes_on);
                // All is taken.
                assert!(writes.bound(cx, Poll::Ready(Ok(()))).is_ready());
                assert!(writes.timer.is_none());
            });
        }
    }
}
