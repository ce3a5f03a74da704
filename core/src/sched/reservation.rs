//! Slots that a request reserves in one piece when it is admitted, as engines did before their cache
//! was paged; here to be compared with. Decides who may be admitted and counts what lies idle; where
//! keys and values lie is the block pool's.
//!
//! The rules are those that W. Kwon et al., "Efficient Memory Management for Large Language Model
//! Serving with `PagedAttention`" (SOSP 2023, section 6.1), compare with, and so is the buddy allocator
//! (D. Knuth, "The Art of Computer Programming", volume 1, section 2.5).

use super::request::Request;
use crate::types::RequestId;
use std::collections::{BTreeMap, BTreeSet};

/// How much of the cache a request holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reservation {
    /// The blocks its tokens lie in.
    #[default]
    Paged,
    /// `max_model_len` slots in one piece, from its admission to its end.
    MaxModelLen,
    /// In one piece: its prompt, and its `max_tokens` rounded up to a power of two.
    PowerOfTwo,
    /// In one piece: its prompt and its `max_tokens`, as an oracle would have it.
    MaxTokens,
}

impl Reservation {
    /// Slots a request asks for, before the allocator rounds them up; `None` where it reserves none.
    fn num_slots(self, request: &Request, max_model_len: usize) -> Option<usize> {
        let (prompt, output) = (request.num_prompt_tokens(), request.params().max_tokens);
        let slots = match self {
            Self::Paged => return None,
            Self::MaxModelLen => max_model_len,
            Self::PowerOfTwo => {
                prompt.saturating_add(output.min(max_model_len).next_power_of_two())
            }
            Self::MaxTokens => prompt.saturating_add(output),
        };
        // What was generated before a preemption is prompt to its successor.
        Some(slots.clamp(request.num_tokens(), max_model_len.max(1)))
    }
}

/// Who has reserved what.
#[derive(Debug)]
pub(super) struct Reservations {
    rule: Reservation,
    buddy: Buddy,
    /// Offset and order.
    held: BTreeMap<RequestId, (usize, usize)>,
}

impl Reservations {
    pub(super) fn new(rule: Reservation, num_slots: usize) -> Self {
        let slots = match rule {
            Reservation::Paged => 0,
            _ => num_slots,
        };
        Self {
            rule,
            buddy: Buddy::new(slots),
            held: BTreeMap::new(),
        }
    }

    /// Reserves what a request asks for; `false` where there is no such piece.
    pub(super) fn reserve(&mut self, request: &Request, max_model_len: usize) -> bool {
        let Some(slots) = self.rule.num_slots(request, max_model_len) else {
            return true;
        };
        let order = order_of(slots);
        let Some(offset) = self.buddy.allocate(order) else {
            return false;
        };
        let before = self.held.insert(request.id(), (offset, order));
        assert!(before.is_none(), "{} has reserved already", request.id());
        true
    }

    /// Slots a request would need in one piece and the largest piece there ever is, where it is too
    /// small.
    pub(super) fn never_fits(
        &self,
        request: &Request,
        max_model_len: usize,
    ) -> Option<(usize, usize)> {
        let slots = 1 << order_of(self.rule.num_slots(request, max_model_len)?);
        let most = self.buddy.largest();
        (slots > most).then_some((slots, most))
    }

    pub(super) fn release(&mut self, id: RequestId) {
        if let Some((offset, order)) = self.held.remove(&id) {
            self.buddy.free(offset, order);
        }
    }

    /// Slots that requests hold, used or not; `None` where nothing is reserved.
    pub(super) fn num_slots(&self) -> Option<usize> {
        let slots = || self.held.values().map(|(_, order)| 1 << order).sum();
        (self.rule != Reservation::Paged).then(slots)
    }

    pub(super) fn check_integrity(&self, runs: impl Fn(RequestId) -> bool) -> Result<(), String> {
        match self.held.keys().find(|id| !runs(**id)) {
            Some(id) => Err(format!("{id} does not run, but has reserved slots")),
            None => Ok(()),
        }
    }
}

/// Binary logarithm of the smallest power of two that holds so many slots.
fn order_of(slots: usize) -> usize {
    slots.max(1).next_power_of_two().trailing_zeros() as usize
}

/// Pieces whose lengths are powers of two. A piece and the one it was halved from are found by one
/// bit of its offset.
#[derive(Debug)]
struct Buddy {
    /// Offsets of free pieces, by order.
    free: Vec<BTreeSet<usize>>,
    total: usize,
}

impl Buddy {
    fn new(total: usize) -> Self {
        let mut free = vec![BTreeSet::new(); usize::BITS as usize];
        // The largest first, so that each begins at a multiple of its length.
        let mut offset = 0;
        for order in (0..free.len()).rev() {
            if total & (1 << order) != 0 {
                free[order].insert(offset);
                offset += 1 << order;
            }
        }
        Self { free, total }
    }

    /// The largest piece there is while all is free.
    fn largest(&self) -> usize {
        match self.total {
            0 => 0,
            total => 1 << total.ilog2(),
        }
    }

    fn allocate(&mut self, order: usize) -> Option<usize> {
        let found = (order..self.free.len()).find(|&o| !self.free[o].is_empty())?;
        let offset = self.free[found].pop_first()?;
        for half in (order..found).rev() {
            self.free[half].insert(offset + (1 << half));
        }
        Some(offset)
    }

    fn free(&mut self, mut offset: usize, mut order: usize) {
        // The largest pieces have no buddy of their length, so this ends.
        while self.free[order].remove(&(offset ^ (1 << order))) {
            offset &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SamplingParams;

    fn request(id: u64, prompt: usize, max_tokens: usize) -> Request {
        let params = SamplingParams {
            max_tokens,
            ..SamplingParams::default()
        };
        Request::new(RequestId(id), vec![1; prompt], params, &[])
    }

    #[test]
    fn rules_reserve_what_they_say() {
        let r = request(0, 100, 25);
        let slots = |rule: Reservation| rule.num_slots(&r, 2048);
        assert_eq!(slots(Reservation::Paged), None);
        assert_eq!(slots(Reservation::MaxModelLen), Some(2048));
        assert_eq!(slots(Reservation::PowerOfTwo), Some(132));
        assert_eq!(slots(Reservation::MaxTokens), Some(125));
    }

    #[test]
    fn pieces_come_back_together() {
        let mut held = Reservations::new(Reservation::MaxTokens, 1000);
        assert_eq!(held.buddy.largest(), 512);
        assert_eq!(
            held.never_fits(&request(9, 500, 13), 2048),
            Some((1024, 512))
        );
        let requests: Vec<_> = (0..7).map(|id| request(id, 100, 20)).collect();
        for r in &requests {
            assert!(held.reserve(r, 2048), "{r:?}");
        }
        assert_eq!(held.num_slots(), Some(7 * 128));
        // 104 slots are free, but no piece of 128.
        assert!(!held.reserve(&request(7, 100, 20), 2048));
        assert!(held.reserve(&request(8, 60, 4), 2048));
        held.release(RequestId(8));
        for id in [3, 0, 6, 1, 5, 2, 4] {
            held.release(RequestId(id));
        }
        let pieces = held.buddy.free.iter().enumerate();
        let pieces: Vec<_> = pieces
            .flat_map(|(o, set)| set.iter().map(move |at| (o, *at)))
            .collect();
        assert_eq!(
            pieces,
            [(3, 992), (5, 960), (6, 896), (7, 768), (8, 512), (9, 0)]
        );
        held.check_integrity(|_| false).unwrap();
    }
}
