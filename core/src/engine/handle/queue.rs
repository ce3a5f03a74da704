//! Who is in the queue of an engine. Requests that came as one, such as the prompts of one body, have one place in it,
//! for as long as any of them is awaited; what is set aside until somebody reads it is in nobody's way. Knows how many
//! there are, and nothing of what they ask.

use crate::types::RequestId;
use std::collections::BTreeMap;

/// Requests that are not over.
#[derive(Debug, Default)]
pub(super) struct Queue {
    num_requests: usize,
    /// Of them those that nobody reads.
    num_unread: usize,
    /// How many of the others have each place. It is called as the first request that had it.
    places: BTreeMap<RequestId, usize>,
}

impl Queue {
    pub(super) fn num_requests(&self) -> usize {
        self.num_requests
    }

    pub(super) fn num_unread(&self) -> usize {
        self.num_unread
    }

    /// Places that are awaited.
    pub(super) fn num_places(&self) -> usize {
        self.places.len()
    }

    /// A request comes.
    pub(super) fn enter(&mut self, place: RequestId) {
        self.num_requests += 1;
        self.take(place);
    }

    /// A request is over.
    pub(super) fn leave(&mut self, place: RequestId, is_unread: bool) {
        self.num_requests -= 1;
        match is_unread {
            true => self.num_unread -= 1,
            false => self.give_back(place),
        }
    }

    /// A request waits for its reader.
    pub(super) fn set_aside(&mut self, place: RequestId) {
        self.num_unread += 1;
        self.give_back(place);
    }

    /// A request that waited for its reader was read.
    pub(super) fn take_up(&mut self, place: RequestId) {
        self.num_unread -= 1;
        self.take(place);
    }

    fn take(&mut self, place: RequestId) {
        *self.places.entry(place).or_default() += 1;
    }

    fn give_back(&mut self, place: RequestId) {
        if let Some(num_requests) = self.places.get_mut(&place) {
            *num_requests -= 1;
            if *num_requests == 0 {
                self.places.remove(&place);
            }
        }
    }
}
