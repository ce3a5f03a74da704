//! A response's body that keeps something until it has been sent or given up: the count of what runs, the
//! line in the log. Knows not what.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// A body with what it keeps.
pub struct GuardedBody {
    /// Dropped before what `body` keeps in its turn: so does a count that goes on never reach nothing.
    _kept: Box<dyn Any + Send + Sync>,
    body: Body,
}

impl GuardedBody {
    /// Keeps `kept` as long as `body` is there.
    pub fn wrap(body: Body, kept: impl Any + Send + Sync) -> Body {
        Body::new(Self {
            body,
            _kept: Box::new(kept),
        })
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
