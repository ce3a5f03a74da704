//! Service-level objectives: what a user was promised. Knows times alone.

use super::request::RequestMetrics;
use std::time::Duration;

/// Bounds on a request's times. Goodput counts the requests that keep all of them (Zhong et al.,
/// `DistServe`, OSDI 2024).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    /// Longest time to the first token.
    pub ttft: Option<Duration>,
    /// Longest time per output token after the first.
    pub tpot: Option<Duration>,
}

impl Slo {
    /// Whether a request that ended kept every bound. One that brought no token kept none of those
    /// that are set.
    pub fn is_met(&self, metrics: &RequestMetrics) -> bool {
        let ttft = self
            .ttft
            .is_none_or(|most| metrics.ttft().is_some_and(|ttft| ttft <= most));
        // A single token has no pace to keep.
        let tpot = self
            .tpot
            .is_none_or(|most| metrics.tpot().is_none_or(|tpot| tpot <= most));
        ttft && tpot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_count() {
        let ms = Duration::from_millis;
        let mut metrics = RequestMetrics::new(ms(0));
        let slo = |ttft: Option<u64>, tpot: Option<u64>| Slo {
            ttft: ttft.map(ms),
            tpot: tpot.map(ms),
        };
        assert!(slo(None, None).is_met(&metrics));
        assert!(!slo(Some(1000), None).is_met(&metrics));
        metrics.record_token(ms(100));
        assert!(slo(Some(100), Some(1)).is_met(&metrics));
        metrics.record_token(ms(120));
        assert!(slo(Some(100), Some(20)).is_met(&metrics));
        assert!(!slo(Some(99), Some(20)).is_met(&metrics));
        assert!(!slo(Some(100), Some(19)).is_met(&metrics));
    }
}
