//! How long a write may wait for its client: who stops reading, or is gone without a word, would otherwise keep a
//! connection forever. Knows no connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The limit of one connection's writes, which come one after another.
#[derive(Debug)]
pub struct WriteLimit {
    limit: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl WriteLimit {
    /// Lets each write wait so long.
    pub fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    /// What a write came to, or that it has waited long enough.
    pub fn bound<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => {
                timer.as_mut().reset(Instant::now() + limit);
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
        let mut limit = WriteLimit::new(Duration::from_millis(20));
        let mut wait = |written: fn() -> Poll<io::Result<usize>>| {
            runtime.block_on(std::future::poll_fn(|cx| limit.bound(cx, written())))
        };
        assert_eq!(wait(|| Poll::Ready(Ok(3))).unwrap(), 3);
        let waited = wait(|| Poll::Pending).unwrap_err();
        assert_eq!(waited.kind(), io::ErrorKind::TimedOut);
    }
}
