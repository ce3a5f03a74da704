//! The body of an answer that comes whole: written piece by piece as it is made, each piece within the room of answers,
//! and gone once it is sent. Knows not what it says.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use super::answer_room::AnswerHold;
use super::api_error::ApiError;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

/// Pieces that were not sent yet.
#[derive(Debug)]
pub struct WholeBody {
    pieces: VecDeque<Bytes>,
    left: usize,
    hold: AnswerHold,
}

impl WholeBody {
    /// Writes what is said as JSON. `hold` is what the answer holds before.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn json(said: &impl Serialize, hold: AnswerHold) -> Result<Self, ApiError> {
        let mut writing = Writing {
            body: Self {
                pieces: VecDeque::new(),
                left: 0,
                hold,
            },
            piece: Vec::new(),
            refused: None,
        };
        let written = serde_json::to_writer(&mut writing, said);
        match (writing.refused.take(), written) {
            (Some(refused), _) => Err(refused),
            (None, Err(error)) => Err(ApiError::internal(error.to_string())),
            (None, Ok(())) => {
                writing.end_piece();
                Ok(writing.body)
            }
        }
    }

    /// Holds no more than what is to be sent: what it was made of is gone.
    #[must_use]
    pub fn alone(mut self) -> Self {
        let before = self.hold.num_bytes() - self.left;
        self.hold.give_back(before);
        self
    }
}

impl IntoResponse for WholeBody {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/json")];
        (kind, Body::new(self)).into_response()
    }
}

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.pieces.pop_front() else {
            return Poll::Ready(None);
        };
        self.left -= piece.len();
        self.hold.give_back(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// A body that grows.
struct Writing {
    body: WholeBody,
    piece: Vec<u8>,
    /// Why it grows no more.
    refused: Option<ApiError>,
}

impl Writing {
    fn end_piece(&mut self) {
        if !self.piece.is_empty() {
            let piece = std::mem::take(&mut self.piece);
            self.body.pieces.push_back(piece.into());
        }
    }
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE {
            self.end_piece();
            self.piece.reserve_exact(PIECE);
        }
        let taken = &bytes[..bytes.len().min(PIECE - self.piece.len())];
        if let Err(error) = self.body.hold.gain(taken.len()) {
            self.refused = Some(error);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.piece.extend_from_slice(taken);
        self.body.left += taken.len();
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::answer_room::AnswerRoom;

    fn next(body: &mut WholeBody) -> Option<Bytes> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        match polled {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        }
    }

    #[test]
    fn a_body_holds_what_it_says_and_less_as_it_is_sent() {
        let said: Vec<String> = (0..30_000_u32).map(|n| n.to_string()).collect();
        let text = serde_json::to_string(&said).unwrap();
        let mut hold = AnswerRoom::new(1 << 20).begin();
        hold.gain(5000).unwrap();
        let body = WholeBody::json(&said, hold).unwrap();
        assert_eq!(body.hold.num_bytes(), 5000 + text.len());
        let mut body = body.alone();
        assert_eq!(body.hold.num_bytes(), text.len());
        let mut sent = Vec::new();
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        while let Some(piece) = next(&mut body) {
            sent.extend_from_slice(&piece);
            assert_eq!(body.hold.num_bytes(), text.len() - sent.len());
        }
        assert!(body.is_end_stream());
        assert_eq!(sent, text.as_bytes());
    }

    #[test]
    fn one_that_finds_no_room_is_refused() {
        let room = AnswerRoom::new(1024);
        let refused = WholeBody::json(&"a".repeat(65 << 10), room.begin()).unwrap_err();
        assert_eq!(refused.code, Some("asks_too_much"));
        assert!(WholeBody::json(&"a".repeat(40 << 10), room.begin()).is_ok());
    }
}
