//! How much of the KV cache was held, and held for nothing, over time. Knows no block.

use crate::sched::KvUsage;
use std::time::Duration;

/// Slots of the KV cache, times the seconds they were held.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KvSlotSeconds {
    /// In blocks that somebody held.
    pub allocated: f64,
    /// Of those, slots without a token.
    pub unused: f64,
}

impl KvSlotSeconds {
    /// Notes a span in which so much was held.
    pub fn record(&mut self, usage: KvUsage, span: Duration) {
        self.allocated += usage.allocated_slots as f64 * span.as_secs_f64();
        self.unused += usage.unused_slots as f64 * span.as_secs_f64();
    }

    /// The share of held memory that held nothing, averaged over time; `None` while nothing was.
    pub fn waste(&self) -> Option<f64> {
        (self.allocated > 0.0).then(|| self.unused / self.allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_is_averaged_over_time() {
        let mut slots = KvSlotSeconds::default();
        assert_eq!(slots.waste(), None);
        for (allocated_slots, unused_slots, seconds) in [(32, 16, 1), (64, 0, 2), (0, 0, 9)] {
            let usage = KvUsage {
                allocated_slots,
                unused_slots,
            };
            slots.record(usage, Duration::from_secs(seconds));
        }
        assert_eq!(slots.waste(), Some(0.1));
    }
}
