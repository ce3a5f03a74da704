//! The streams of one request's prompts as one stream, each piece with its prompt's place. Dropping it
//! gives up all of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use twoclock_core::engine::RequestOutput;
use twoclock_core::engine::handle::{RequestStream, StreamError};

/// A piece: whose, and what it gained.
pub type Piece = (usize, Result<RequestOutput, StreamError>);

/// Streams that are not over, in the order of their prompts.
#[derive(Debug)]
pub struct Answers {
    streams: Vec<Option<RequestStream>>,
    /// Who is looked at first, so that none waits behind the others.
    next: usize,
}

impl Answers {
    /// These streams.
    pub fn new(streams: Vec<RequestStream>) -> Self {
        Self {
            streams: streams.into_iter().map(Some).collect(),
            next: 0,
        }
    }

    /// The next piece of any of them; `None` when all are over.
    pub async fn next(&mut self) -> Option<Piece> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Answers {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let len = self.streams.len();
        let mut is_over = true;
        for step in 0..len {
            let place = (self.next + step) % len;
            let Some(stream) = &mut self.streams[place] else {
                continue;
            };
            match Pin::new(stream).poll_next(cx) {
                Poll::Ready(Some(piece)) => {
                    self.next = (place + 1) % len;
                    return Poll::Ready(Some((place, piece)));
                }
                Poll::Ready(None) => self.streams[place] = None,
                Poll::Pending => is_over = false,
            }
        }
        match is_over {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}
