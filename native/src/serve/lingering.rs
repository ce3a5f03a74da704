//! A connection that ends as its client can bear: what still comes of a request that nobody will read is read and
//! thrown away for a while, as else the host would cut the connection and with it the answer that says why. Knows no HTTP.

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

/// A connection, and whether its client is in the middle of a request.
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
                return match self.unread.is_some() {
                    true => Poll::Pending,
                    false => Poll::Ready(()),
                };
            };
            let length = buffer.filled().len();
            if read.is_err() || length == 0 {
                break;
            }
            self.unread.begin();
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
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.unread.begin();
        }
        polled
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use super::*;

    /// What a client sends; after it, silence. Nothing is its end.
    struct Client(VecDeque<&'static str>);

    impl AsyncRead for Client {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(said) = self.0.pop_front() else {
                return Poll::Pending;
            };
            buffer.put_slice(said.as_bytes());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Client {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Whether the connection has ended, when it is next looked at.
    fn ends(connection: &mut Lingering<Client>) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(connection).poll_shutdown(cx).is_ready()
    }

    fn connection(said: &[&'static str]) -> Lingering<Client> {
        Lingering::new(Client(said.iter().copied().collect()), Unread::default())
    }

    #[test]
    fn who_is_in_the_middle_of_a_head_is_waited_for_though_it_is_silent() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let mut connection = connection(&["GET / HT"]);
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            let cx = &mut Context::from_waker(Waker::noop());
            let read = Pin::new(&mut connection).poll_read(cx, &mut buffer);
            assert!(read.is_ready() && buffer.filled() == b"GET / HT");
            // Nothing lies there: the rest is yet to come.
            assert!(!ends(&mut connection));
            connection.inner.0.push_back("TP/1.1");
            assert!(!ends(&mut connection));
            connection.inner.0.push_back("");
            assert!(ends(&mut connection));
        });
    }

    #[test]
    fn who_sent_nothing_that_was_not_read_is_not_waited_for() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            assert!(ends(&mut connection(&[])));
            // What came behind a request, and was never asked for.
            assert!(!ends(&mut connection(&["GET /"])));
        });
    }
}
