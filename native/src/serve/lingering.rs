//! A connection that ends as its client can bear: what still comes of a body that nobody will read is read and thrown
//! away for a while, as else the host would cut the connection and with it the answer that says why. Knows no HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::unread::Unread;

/// Longest time that something is thrown away.
pub const LINGER: Duration = Duration::from_secs(2);
/// Most bytes that are.
const MOST: usize = 64 << 20;
/// Of them at a time.
const PIECE: usize = 16 << 10;

/// A connection, and whether its client is in the middle of a body.
#[derive(Debug)]
pub struct Lingering<T> {
    inner: T,
    unread: Unread,
    end: Option<End>,
}

/// What is left of the end.
#[derive(Debug)]
struct End {
    timer: Pin<Box<Sleep>>,
    bytes: usize,
    is_shut: bool,
}

impl<T> Lingering<T> {
    /// Ends `inner` so where something is unread.
    pub fn new(inner: T, unread: Unread) -> Self {
        Self {
            inner,
            unread,
            end: None,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Lingering<T> {
    /// Reads what comes until there is no more, or enough.
    fn throw_away(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(end) = &mut self.end else {
            return Poll::Ready(());
        };
        let mut piece = [0; PIECE];
        while end.bytes > 0 && end.timer.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut piece);
            let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(cx, &mut buffer) else {
                // Who is in the middle of something goes on; who is not may be silent for long.
                return match self.unread.is_some() || end.bytes < MOST {
                    true => Poll::Pending,
                    false => Poll::Ready(()),
                };
            };
            let length = buffer.filled().len();
            if read.is_err() || length == 0 {
                break;
            }
            end.bytes = end.bytes.saturating_sub(length);
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lingering<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Says that the answer is whole, and ends once the client has heard it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let end = this.end.get_or_insert_with(|| End {
            timer: Box::pin(sleep(LINGER)),
            bytes: MOST,
            is_shut: false,
        });
        if !end.is_shut {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            end.is_shut = true;
        }
        this.throw_away(cx).map(Ok)
    }
}
