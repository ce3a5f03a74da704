//! Which of the states on the device is whose. Knows no state's content.

use crate::types::RequestId;
use std::collections::BTreeMap;

/// Slots of the state buffer by request: one from its first step until it ends or gives up its blocks.
#[derive(Debug)]
pub(super) struct StateSlots {
    used: BTreeMap<RequestId, u32>,
    free: Vec<u32>,
    /// Slots from here on were never used.
    next: u32,
    num_slots: u32,
}

impl StateSlots {
    pub(super) fn new(num_slots: u32) -> Self {
        Self {
            used: BTreeMap::new(),
            free: Vec::new(),
            next: 0,
            num_slots,
        }
    }

    /// Takes the slots of these requests back. Steps in flight may still write into them; whoever has
    /// them next begins with a step behind those, which gives the whole state.
    pub(super) fn release(&mut self, ids: &[RequestId]) {
        let slots = ids.iter().filter_map(|id| self.used.remove(id));
        self.free.extend(slots);
    }

    /// The slot of a request; `None` where more run than there are slots.
    pub(super) fn slot(&mut self, id: RequestId) -> Option<u32> {
        if let Some(slot) = self.used.get(&id) {
            return Some(*slot);
        }
        let fresh = (self.next < self.num_slots).then_some(self.next);
        let slot = self.free.pop().or(fresh)?;
        self.next = self.next.max(slot + 1);
        self.used.insert(id, slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut slots = StateSlots::new(2);
        let [a, b, c] = [0, 1, 2].map(RequestId);
        assert_eq!([a, b, a].map(|id| slots.slot(id)), [0, 1, 0].map(Some));
        assert_eq!(slots.slot(c), None);
        slots.release(&[a, c]);
        assert_eq!([c, b].map(|id| slots.slot(id)), [0, 1].map(Some));
        slots.release(&[a, b]);
        assert_eq!(slots.slot(a), Some(1));
    }
}
