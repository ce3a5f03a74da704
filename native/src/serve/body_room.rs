//! What the bodies of all requests may hold together, or those of all answers. A part of it is for short ones alone, so
//! that those who send or ask for much leave room for the others. Knows not what is in them.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api_error::ApiError;
use super::reading::SHORT;
use crate::heap;

/// Bodies of the greatest length that are held at once.
const WHOLE_BODIES: usize = 64;
/// Of them those in whose place only short ones are.
const FOR_SHORT: usize = 16;

/// The room that is free. A permit a KiB.
#[derive(Clone, Debug)]
pub struct BodyRoom {
    /// Everybody's.
    common: Arc<Semaphore>,
    short: Arc<Semaphore>,
    /// Bytes of everybody's when all of it is free.
    most: usize,
}

/// Room that is taken until this is dropped. It grows while a body is read, and nobody waits for room while holding some.
#[derive(Debug, Default)]
pub struct HeldRoom {
    common: Option<OwnedSemaphorePermit>,
    short: Option<OwnedSemaphorePermit>,
}

impl BodyRoom {
    /// Room for some bodies of `longest` bytes, and for many shorter ones.
    pub fn new(longest: usize) -> Self {
        let room = |bodies| {
            let kib = longest.div_ceil(1024).saturating_mul(bodies);
            Arc::new(Semaphore::new(kib.min(Semaphore::MAX_PERMITS)))
        };
        let common = room(WHOLE_BODIES - FOR_SHORT);
        Self {
            most: common.available_permits().saturating_mul(1024),
            common,
            short: room(FOR_SHORT),
        }
    }

    /// Holds what a body of so many bytes takes, no fewer than before, if it is there. One that turns out to be long
    /// leaves the room of short ones.
    pub fn grow(&self, held: &mut HeldRoom, bytes: usize) -> bool {
        let kib = bytes.div_ceil(1024);
        if bytes > SHORT {
            let more = kib - num(&held.common);
            let is_there = add(&self.common, &mut held.common, more);
            if is_there {
                held.short = None;
            }
            return is_there;
        }
        let more = kib - num(&held.common) - num(&held.short);
        add(&self.short, &mut held.short, more) || add(&self.common, &mut held.common, more)
    }

    /// The most bytes that one body can ever hold.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Holds what is kept of a body once it is read, be it less than it took or, as many a request is short and asks
    /// much, more.
    ///
    /// # Errors
    /// It is not there, or never could be.
    pub fn exchange(&self, mut held: HeldRoom, bytes: usize) -> Result<HeldRoom, ApiError> {
        if bytes.div_ceil(1024) <= held.num_kib() {
            return Ok(held.keep(bytes));
        }
        if bytes > self.most {
            let said = format!(
                "what is asked for would hold {bytes} bytes while it waits, but {} are there for everybody: ask for \
                 fewer prompts, or fewer answers to each (n)",
                self.most
            );
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, said).code("asks_too_much"));
        }
        match self.grow(&mut held, bytes) {
            true => Ok(held),
            false => Err(no_room()),
        }
    }
}

/// What is said where it is not there.
pub fn no_room() -> ApiError {
    let said = "the bodies of other requests take all the room there is: try again later";
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, said);
    error.code("too_many_bodies").retry_after(1)
}

/// Holds so much more of it, if it is there.
fn add(room: &Arc<Semaphore>, held: &mut Option<OwnedSemaphorePermit>, kib: usize) -> bool {
    let Ok(kib) = u32::try_from(kib) else {
        return false;
    };
    let Ok(more) = Arc::clone(room).try_acquire_many_owned(kib) else {
        return false;
    };
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
    true
}

fn num(held: &Option<OwnedSemaphorePermit>) -> usize {
    held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
}

impl HeldRoom {
    fn num_kib(&self) -> usize {
        num(&self.common) + num(&self.short)
    }

    /// Keeps what so many bytes take, no more than before, and gives the rest back.
    #[must_use]
    pub fn keep(mut self, bytes: usize) -> Self {
        let mut left = bytes.div_ceil(1024);
        note_freed(self.num_kib().saturating_sub(left));
        for held in [&mut self.short, &mut self.common] {
            let kept = left.min(num(held));
            *held = held.as_mut().and_then(|held| held.split(kept));
            left -= kept;
        }
        self
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        note_freed(self.num_kib());
    }
}

/// What is read of a body, or gathered for an answer, is many times as much as it, in small pieces.
fn note_freed(kib: usize) {
    if kib.saturating_mul(1024) > SHORT {
        heap::freed_much();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = 4 * SHORT;
    const LONGEST_KIB: usize = LONGEST / 1024;

    fn free(room: &BodyRoom) -> (usize, usize) {
        (
            room.common.available_permits(),
            room.short.available_permits(),
        )
    }

    fn hold(room: &BodyRoom, bytes: usize) -> Option<HeldRoom> {
        let mut held = HeldRoom::default();
        room.grow(&mut held, bytes).then_some(held)
    }

    #[test]
    fn long_bodies_leave_room_for_short_ones() {
        let room = BodyRoom::new(LONGEST);
        let (common, short) = free(&room);
        let mut long = Vec::new();
        long.extend(std::iter::from_fn(|| hold(&room, LONGEST)));
        assert_eq!(long.len(), WHOLE_BODIES - FOR_SHORT);
        assert_eq!(free(&room), (0, short));
        assert!(hold(&room, SHORT + 1).is_none());
        // Those that are not whole yet are short until they are seen to be long.
        let mut grows = hold(&room, 1).unwrap();
        assert!(room.grow(&mut grows, SHORT));
        assert_eq!(free(&room), (0, short - SHORT / 1024));
        assert!(!room.grow(&mut grows, SHORT + 1));
        long.pop();
        assert!(room.grow(&mut grows, SHORT + 1));
        assert_eq!(free(&room), (LONGEST_KIB - SHORT / 1024 - 1, short));
        // Short ones that find no room of their own take everybody's.
        let few: Vec<_> = std::iter::from_fn(|| hold(&room, SHORT)).collect();
        assert!(few.len() > short / (SHORT / 1024));
        drop((long, few, grows));
        assert_eq!(free(&room), (common, short));
    }

    #[test]
    fn what_is_kept_of_a_body_keeps_its_room() {
        let room = BodyRoom::new(LONGEST);
        let sum = |(common, short)| common + short;
        let all = sum(free(&room));
        for (read, bytes, kept) in [
            (4096, 0, 0),
            (4096, 1, 1),
            (4096, 1024, 1),
            (4096, 1025, 2),
            (4096, 4096, 4),
            (4096, 9999, 10),
            (4096, SHORT + 1, SHORT / 1024 + 1),
            (LONGEST, 1025, 2),
            (LONGEST, LONGEST + 1, LONGEST_KIB + 1),
        ] {
            let held = hold(&room, read).unwrap();
            let held = room.exchange(held, bytes).unwrap();
            assert_eq!(sum(free(&room)), all - kept, "{bytes} of {read}");
            drop(held);
            assert_eq!(sum(free(&room)), all);
        }
    }
    #[test]
    fn what_is_kept_may_take_more_than_the_body_if_it_is_there() {
        let room = BodyRoom::new(LONGEST);
        let all = free(&room);
        let (common_kib, _) = all;
        let read = || hold(&room, 1024).unwrap();
        let never = room.exchange(read(), common_kib * 1024 + 1);
        assert_eq!(never.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        let whole = room.exchange(read(), common_kib * 1024).unwrap();
        assert_eq!(free(&room).0, 0);
        let later = room.exchange(read(), SHORT + 1).unwrap_err();
        assert_eq!(later, no_room());
        drop(whole);
        drop(room.exchange(read(), SHORT + 1).unwrap());
        assert_eq!(free(&room), all);
    }
}
