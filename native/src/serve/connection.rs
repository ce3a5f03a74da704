//! A client's connection as the server keeps it: a write waits no longer than it may, who is answered in the middle of
//! a request can read why, and answers run until they are written. Owns the bytes' way; knows no HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::lingering::Lingering;
use super::unread::Unread;
use super::unsent::Unsent;
use super::write_limit::WriteLimit;

/// A connection over `T`.
#[derive(Debug)]
pub struct Connection<T> {
    stream: T,
    write_limit: WriteLimit,
    unread: Unread,
    unsent: Unsent,
    /// Once all that is to be said is said.
    end: Option<Lingering>,
}

impl<T> Connection<T> {
    /// Over `stream`, whose writes have this limit. `unread` and `unsent` are shared with what reads requests from it
    /// and gives it answers.
    pub fn new(stream: T, write_limit: WriteLimit, unread: Unread, unsent: Unsent) -> Self {
        Self {
            stream,
            write_limit,
            unread,
            unsent,
            end: None,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Connection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.unread.begin();
        }
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.write_limit.bound_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.write_limit.bound_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// All that was given is written when this is done.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.unsent.clear();
        }
        self.write_limit.bound(cx, flushed)
    }

    /// Says that the answer is whole, and ends once the client has heard it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.end.is_none() {
            let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.write_limit.bound(cx, shut))?;
        }
        let end = this.end.get_or_insert_default();
        end.throw_away(&mut this.stream, &this.unread, cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;
    use std::time::Duration;

    use super::super::shutdown::Shutdown;
    use super::super::write_limit::ReadsTooLittle;
    use super::*;

    /// What a client sends; after it, silence. Nothing is its end. It reads all, or nothing.
    struct Client {
        says: VecDeque<&'static str>,
        reads: bool,
    }

    impl Client {
        fn write<R>(&self, written: R) -> Poll<io::Result<R>> {
            match self.reads {
                true => Poll::Ready(Ok(written)),
                false => Poll::Pending,
            }
        }
    }

    impl AsyncRead for Client {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(said) = self.says.pop_front() else {
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
            self.write(bytes.len())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.write(())
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.write(())
        }
    }

    const LIMIT: Duration = Duration::from_millis(20);

    fn connection(says: &[&'static str], reads: bool) -> Connection<Client> {
        let says = says.iter().copied().collect();
        let unsent = Unsent::new(Shutdown::default());
        let limit = WriteLimit::new(LIMIT, ReadsTooLittle::default());
        Connection::new(Client { says, reads }, limit, Unread::default(), unsent)
    }

    fn block_on<R>(work: impl Future<Output = R>) -> R {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work)
    }

    /// Whether the connection has ended, when it is next looked at.
    fn ends(connection: &mut Connection<Client>) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(connection).poll_shutdown(cx).is_ready()
    }

    #[test]
    fn who_is_in_the_middle_of_a_head_is_waited_for_though_it_is_silent() {
        block_on(async {
            let mut connection = connection(&["GET / HT"], true);
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            let cx = &mut Context::from_waker(Waker::noop());
            let read = Pin::new(&mut connection).poll_read(cx, &mut buffer);
            assert!(read.is_ready() && buffer.filled() == b"GET / HT");
            // Nothing lies there: the rest is yet to come.
            assert!(!ends(&mut connection));
            connection.stream.says.push_back("TP/1.1");
            assert!(!ends(&mut connection));
            connection.stream.says.push_back("");
            assert!(ends(&mut connection));
        });
    }

    #[test]
    fn who_sent_nothing_that_was_not_read_is_not_waited_for() {
        block_on(async {
            assert!(ends(&mut connection(&[], true)));
            // What came behind a request, and was never asked for.
            assert!(!ends(&mut connection(&["GET /"], true)));
        });
    }

    #[test]
    fn who_reads_nothing_is_given_up_in_whatever_is_done() {
        block_on(async {
            type Doing = fn(Pin<&mut Connection<Client>>, &mut Context<'_>) -> Poll<io::Result<()>>;
            let doings: [Doing; 3] = [
                |connection, cx| connection.poll_write(cx, b"abc").map_ok(drop),
                Connection::poll_flush,
                Connection::poll_shutdown,
            ];
            for doing in doings {
                let mut connection = connection(&[], false);
                let done = std::future::poll_fn(|cx| doing(Pin::new(&mut connection), cx)).await;
                assert_eq!(done.unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
        });
    }
}
