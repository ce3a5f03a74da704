//! Whether a connection's client is in the middle of a request: of a head of which some has come, or of a body of which
//! not all was read. Its answer then comes while the client still writes. Shared by the body and the connection; knows
//! neither how it is read nor what becomes of the rest.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};

/// Nothing has come at all.
const SILENT: u8 = 0;
/// Something is left.
const BEGUN: u8 = 1;
/// All that came is read.
const READ: u8 = 2;
/// Something is left, behind what was read before.
const BEGUN_AGAIN: u8 = 3;

/// Of one connection, whose requests come one after another.
#[derive(Clone, Debug, Default)]
pub struct Unread(Arc<AtomicU8>);

impl Unread {
    /// Whether some is left.
    pub fn is_some(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), BEGUN | BEGUN_AGAIN)
    }

    /// Whether some is left of a further request.
    pub fn is_of_another(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BEGUN_AGAIN
    }

    /// Whether nothing has come yet.
    pub fn is_silent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SILENT
    }

    /// Bytes came: of a head that is to be read, until a body says otherwise.
    pub fn begin(&self) {
        let state = match self.0.load(Ordering::Relaxed) {
            READ | BEGUN_AGAIN => BEGUN_AGAIN,
            _ => BEGUN,
        };
        self.0.store(state, Ordering::Relaxed);
    }

    /// Watches the body of the request that is now there.
    pub fn watch(&self, body: Incoming) -> Body {
        self.set(body.is_end_stream());
        let unread = self.clone();
        Body::new(Watched { body, unread })
    }

    fn set(&self, is_read: bool) {
        let state = if is_read { READ } else { BEGUN };
        self.0.store(state, Ordering::Relaxed);
    }
}

/// A body that tells when it was read.
struct Watched {
    body: Incoming,
    unread: Unread,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            self.unread
                .set(frame.is_none() || self.body.is_end_stream());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
