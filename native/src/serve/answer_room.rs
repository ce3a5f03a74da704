//! What the answers that come whole may hold together: what is gathered of them, and their bodies until they are sent.
//! Knows neither what answers are made of nor who they are for.

use axum::http::StatusCode;

use super::api_error::ApiError;
use super::body_room::{BodyRoom, HeldRoom};
use super::reading::SHORT;
use crate::heap;

/// The room that is free, as much as bodies of requests have. Clones are the same.
#[derive(Clone, Debug)]
pub struct AnswerRoom(BodyRoom);

/// What one answer holds of it, until this is dropped.
#[derive(Debug)]
pub struct AnswerHold {
    room: AnswerRoom,
    held: HeldRoom,
    bytes: usize,
    /// Most that it held at once.
    most: usize,
}

impl AnswerRoom {
    /// Room for some answers of `longest` bytes, and for many shorter ones.
    pub fn new(longest: usize) -> Self {
        Self(BodyRoom::new(longest))
    }

    /// For an answer of which there is nothing yet.
    pub fn begin(&self) -> AnswerHold {
        AnswerHold {
            room: self.clone(),
            held: HeldRoom::default(),
            bytes: 0,
            most: 0,
        }
    }
}

impl AnswerHold {
    /// Bytes that are held.
    pub fn num_bytes(&self) -> usize {
        self.bytes
    }

    /// Holds so much more.
    ///
    /// # Errors
    /// It is not there, or never could be; nobody waits for it, as all who wait would hold what the others wait for.
    pub fn gain(&mut self, bytes: usize) -> Result<(), ApiError> {
        let whole = self.bytes.saturating_add(bytes);
        let room = &self.room.0;
        // Most of what comes is a few bytes, and room is counted in KiB.
        if whole.div_ceil(1024) > self.bytes.div_ceil(1024) && !room.grow(&mut self.held, whole) {
            return Err(match whole > room.most() {
                true => asks_too_much(room.most()),
                false => no_room(),
            });
        }
        self.bytes = whole;
        self.most = self.most.max(whole);
        Ok(())
    }

    /// Gives so much back.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.held = std::mem::take(&mut self.held).keep(self.bytes);
    }
}

impl Drop for AnswerHold {
    fn drop(&mut self) {
        // It went piece by piece, none of which is much.
        if self.most > SHORT {
            heap::freed_much();
        }
    }
}

fn asks_too_much(most: usize) -> ApiError {
    let said = format!(
        "this answer would hold more than the {most} bytes that are there for all that come whole: ask for fewer \
         prompts, answers (n) or log-probabilities, or for a stream where there is one"
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, said).code("asks_too_much")
}

fn no_room() -> ApiError {
    let said = "the answers to other requests take all the room there is for those that come whole: try again later, \
                or ask for a stream where there is one";
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, said);
    error.code("too_many_answers").retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_finds_no_room_leaves_the_others_theirs() {
        let room = AnswerRoom::new(128 << 10);
        let most = room.0.most();
        let mut long = room.begin();
        long.gain(most - 2048).unwrap();
        let mut other = room.begin();
        // Those that are short have room of their own.
        other.gain(64 << 10).unwrap();
        assert_eq!(other.gain(1), Err(no_room()));
        assert_eq!(other.num_bytes(), 64 << 10);
        long.gain(2048).unwrap();
        assert_eq!(long.gain(1), Err(asks_too_much(most)));
        long.give_back(most / 2);
        other.gain(most / 4).unwrap();
        drop(long);
        drop(other);
        room.begin().gain(most).unwrap();
    }
}
