//! When things happened to a request, and the figures made of it. Knows no clock: moments come in
//! as time since the clock's own beginning.

use crate::sched::KvUsage;
use std::time::Duration;

/// The times of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMetrics {
    /// When it was added.
    pub arrival: Duration,
    /// When its first token came out.
    pub first_token: Option<Duration>,
    /// When its latest token came out.
    pub last_token: Option<Duration>,
    /// Tokens that came out, a stop id excluded.
    pub num_output_tokens: usize,
}

impl RequestMetrics {
    /// A request that was just added.
    pub fn new(arrival: Duration) -> Self {
        Self {
            arrival,
            first_token: None,
            last_token: None,
            num_output_tokens: 0,
        }
    }

    /// Notes a token.
    pub fn record_token(&mut self, now: Duration) {
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        self.num_output_tokens += 1;
    }

    /// Time to first token: from arrival, waiting included.
    pub fn ttft(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_sub(self.arrival))
    }

    /// Time per output token after the first; `None` with fewer than two.
    pub fn tpot(&self) -> Option<Duration> {
        let intervals = u32::try_from(self.num_output_tokens.checked_sub(1)?).ok()?;
        let span = self.last_token?.saturating_sub(self.first_token?);
        span.checked_div(intervals)
    }
}

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

    #[test]
    fn first_and_later_tokens_are_told_apart() {
        let ms = Duration::from_millis;
        let mut m = RequestMetrics::new(ms(100));
        assert_eq!((m.ttft(), m.tpot()), (None, None));
        m.record_token(ms(350));
        assert_eq!((m.ttft(), m.tpot()), (Some(ms(250)), None));
        m.record_token(ms(360));
        m.record_token(ms(390));
        assert_eq!((m.ttft(), m.tpot()), (Some(ms(250)), Some(ms(20))));
    }
}
