//! When things happened to one request, and the spans made of it. Knows no other request.

use crate::sched::ServiceLevel;
use std::time::Duration;

/// The times of one request.
///
/// ```text
///  arrival      scheduled        first_token                last_token
///  |--- queue ---|--- prefill ---|--------- decode ---------|
///  |------------ TTFT -----------|-- TPOT --|-- TPOT --| …
///                |--------------- inference ----------------|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMetrics {
    /// When it was added.
    pub arrival: Duration,
    /// When a step first had a share for it.
    pub scheduled: Option<Duration>,
    /// When its first token came out, one that ended it included.
    pub first_token: Option<Duration>,
    /// When its latest token came out.
    pub last_token: Option<Duration>,
    /// Tokens that came out, a stop id excluded.
    pub num_output_tokens: usize,
    /// Times that it gave its blocks to others and had to come back.
    pub num_preemptions: usize,
}

impl RequestMetrics {
    /// A request that was just added.
    pub fn new(arrival: Duration) -> Self {
        Self {
            arrival,
            scheduled: None,
            first_token: None,
            last_token: None,
            num_output_tokens: 0,
            num_preemptions: 0,
        }
    }

    /// Notes that a step has a share for it; only the first counts.
    pub fn record_scheduled(&mut self, now: Duration) {
        self.scheduled.get_or_insert(now);
    }

    /// Notes a token, and gives its inter-token latency: the time since the one before it.
    pub fn record_token(&mut self, now: Duration) -> Option<Duration> {
        let since = self.last_token.map(|last| now.saturating_sub(last));
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        self.num_output_tokens += 1;
        since
    }

    /// Notes that the first token ended it: there is none of its own.
    pub fn record_end(&mut self, now: Duration) {
        self.first_token.get_or_insert(now);
        self.last_token.get_or_insert(now);
    }

    /// Time to first token: from arrival, waiting included.
    pub fn ttft(&self) -> Option<Duration> {
        span(Some(self.arrival), self.first_token)
    }

    /// Time per output token after the first; `None` with fewer than two.
    pub fn tpot(&self) -> Option<Duration> {
        let intervals = u32::try_from(self.num_output_tokens.checked_sub(1)?).ok()?;
        self.decode()?.checked_div(intervals)
    }

    /// Time it waited before a step first had a share for it.
    pub fn queue(&self) -> Option<Duration> {
        span(Some(self.arrival), self.scheduled)
    }

    /// From its first share of a step to its first token.
    pub fn prefill(&self) -> Option<Duration> {
        span(self.scheduled, self.first_token)
    }

    /// From its first token to its last.
    pub fn decode(&self) -> Option<Duration> {
        span(self.first_token, self.last_token)
    }

    /// From its first share of a step to its last token.
    pub fn inference(&self) -> Option<Duration> {
        span(self.scheduled, self.last_token)
    }
}

impl RequestMetrics {
    /// Whether a request that ended kept every bound of a service level: goodput counts those that
    /// did (Zhong et al., `DistServe`, OSDI 2024). One without a token kept no bound on its first.
    pub fn meets(&self, level: &ServiceLevel) -> bool {
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        let ttft = level
            .ttft
            .is_none_or(|most| seconds(self.ttft()).is_some_and(|ttft| ttft <= most));
        // A single token has no pace to keep.
        let tpot = level
            .tpot
            .is_none_or(|most| seconds(self.tpot()).is_none_or(|tpot| tpot <= most));
        ttft && tpot
    }
}

/// What a request asked for, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// Tokens of its prompt.
    pub num_prompt_tokens: usize,
    /// Most tokens it might draw; 0 where it draws none.
    pub max_tokens: usize,
    /// Answers asked for with it.
    pub n: usize,
}

fn span(from: Option<Duration>, to: Option<Duration>) -> Option<Duration> {
    Some(to?.saturating_sub(from?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_of_a_service_level_count() {
        let ms = Duration::from_millis;
        let level = |ttft, tpot| ServiceLevel { tpot, ttft };
        let mut metrics = RequestMetrics::new(ms(0));
        assert!(metrics.meets(&level(None, None)));
        assert!(!metrics.meets(&level(Some(1.0), None)));
        metrics.record_token(ms(100));
        assert!(metrics.meets(&level(Some(0.1), Some(0.001))));
        metrics.record_token(ms(120));
        assert!(metrics.meets(&level(Some(0.1), Some(0.02))));
        assert!(!metrics.meets(&level(Some(0.099), Some(0.02))));
        assert!(!metrics.meets(&level(Some(0.1), Some(0.019))));
    }

    #[test]
    fn first_and_later_tokens_are_told_apart() {
        let ms = Duration::from_millis;
        let mut m = RequestMetrics::new(ms(100));
        assert_eq!((m.ttft(), m.tpot(), m.queue()), (None, None, None));
        m.record_scheduled(ms(150));
        m.record_scheduled(ms(200));
        assert_eq!(m.record_token(ms(350)), None);
        assert_eq!((m.ttft(), m.tpot()), (Some(ms(250)), None));
        assert_eq!(m.record_token(ms(360)), Some(ms(10)));
        assert_eq!(m.record_token(ms(390)), Some(ms(30)));
        assert_eq!((m.ttft(), m.tpot()), (Some(ms(250)), Some(ms(20))));
        assert_eq!((m.queue(), m.prefill()), (Some(ms(50)), Some(ms(200))));
        assert_eq!((m.decode(), m.inference()), (Some(ms(40)), Some(ms(240))));
    }
}
