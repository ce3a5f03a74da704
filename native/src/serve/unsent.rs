//! Answers that were given and are not yet written: hyper takes a whole body at once and writes it as its client reads.
//! They run until the connection has written them or is gone. Shared by the answer and the connection; knows neither.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::guarded_body::GuardedBody;
use super::shutdown::{Running, Shutdown};

/// Those of one connection.
#[derive(Clone, Debug)]
pub struct Unsent {
    shutdown: Shutdown,
    answers: Arc<Mutex<Vec<Running>>>,
}

impl Unsent {
    /// None yet.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            answers: Arc::default(),
        }
    }

    /// Watches the body of an answer.
    pub fn watch(&self, body: Body) -> Body {
        GuardedBody::wrap(body, Given(self.clone()))
    }

    /// All that was given is written.
    fn clear(&self) {
        self.answers().clear();
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Running>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when the last of a body was given.
struct Given(Unsent);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.answers().push(self.0.shutdown.answered());
    }
}

/// A connection that tells when it has written all it was given, which is when it is flushed.
#[derive(Debug)]
pub struct Written<T> {
    inner: T,
    unsent: Unsent,
}

impl<T> Written<T> {
    /// Tells of what is written to `inner`.
    pub fn new(inner: T, unsent: Unsent) -> Self {
        Self { inner, unsent }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Written<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Written<T> {
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
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.unsent.clear();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
