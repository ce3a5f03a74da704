//! The end of a connection as its client can bear it: what still comes of a request that nobody will read is read and
//! thrown away for a while, as else the host would cut the connection and with it the answer that says why. Knows no HTTP.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::unread::Unread;

/// Longest time that something is thrown away.
pub const LINGER: Duration = Duration::from_secs(2);
/// Most bytes that are.
const MOST: usize = 64 << 20;
/// Of them at a time.
const PIECE: usize = 16 << 10;

/// What is left of the end, which begins when this is made.
#[derive(Debug)]
pub struct Lingering {
    timer: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Default for Lingering {
    fn default() -> Self {
        Self {
            timer: Box::pin(sleep(LINGER)),
            bytes: MOST,
        }
    }
}

impl Lingering {
    /// Reads what comes until there is no more, or enough.
    pub fn throw_away(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        unread: &Unread,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut piece = [0; PIECE];
        while self.bytes > 0 && self.timer.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut piece);
            let Poll::Ready(read) = Pin::new(&mut *stream).poll_read(cx, &mut buffer) else {
                // Who is in the middle of something goes on; who is not may be silent for long.
                return match unread.is_some() {
                    true => Poll::Pending,
                    false => Poll::Ready(()),
                };
            };
            let length = buffer.filled().len();
            if read.is_err() || length == 0 {
                break;
            }
            unread.begin();
            self.bytes = self.bytes.saturating_sub(length);
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::task::Waker;

    use super::*;

    /// A client that goes on for ever, and what was read of it.
    struct Endless(usize);

    impl AsyncRead for Endless {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let piece = buffer.remaining();
            buffer.initialize_unfilled();
            buffer.advance(piece);
            self.0 += piece;
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn no_more_is_thrown_away_than_enough() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let mut client = Endless(0);
            let cx = &mut Context::from_waker(Waker::noop());
            let mut lingering = Lingering::default();
            let unread = Unread::default();
            assert!(lingering.throw_away(&mut client, &unread, cx).is_ready());
            assert!((1..=MOST).contains(&client.0), "{}", client.0);
        });
    }
}
