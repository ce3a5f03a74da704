//! How long nothing is tried again after failures in a row: each time twice as long, with an end. Knows neither
//! models nor clocks.

use std::time::{Duration, Instant};

/// Longest time.
const LONGEST: Duration = Duration::from_secs(60);
/// What went well so long has nothing to do with the failures before it.
const STEADY: Duration = Duration::from_secs(300);

/// What failed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A model could not be loaded.
    Load,
    /// An engine could not go on.
    Engine,
}

/// Failures in a row, and until when nothing is tried for them.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    num_failures: u32,
    /// What failed, as long as nothing went well since, and the end of the time.
    last: Option<(Failure, Instant)>,
    succeeded: Option<Instant>,
}

impl Backoff {
    /// No failures yet; after the first it takes `first`.
    pub fn new(first: Duration) -> Self {
        Self {
            first,
            num_failures: 0,
            last: None,
            succeeded: None,
        }
    }

    /// It failed now. Gives the time until it may be tried again.
    pub fn fail(&mut self, failure: Failure, now: Instant) -> Duration {
        let succeeded = self.succeeded.take();
        if succeeded.is_some_and(|at| now.saturating_duration_since(at) >= STEADY) {
            self.num_failures = 0;
        }
        self.num_failures = self.num_failures.saturating_add(1);
        let factor = 2u32.saturating_pow(self.num_failures - 1);
        let time = self.first.saturating_mul(factor).min(LONGEST);
        self.last = Some((failure, now + time));
        time
    }

    /// It went well now.
    pub fn succeed(&mut self, now: Instant) {
        self.last = None;
        self.succeeded = Some(now);
    }

    /// Whether what happened last is that it failed.
    pub fn has_failed(&self) -> bool {
        self.last.is_some()
    }

    /// What failed and how long nothing is tried for it yet; `None` where something may be.
    pub fn left(&self, now: Instant) -> Option<(Failure, Duration)> {
        let (failure, until) = self.last?;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then_some((failure, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_time_grows_and_has_an_end() {
        let now = Instant::now();
        let mut backoff = Backoff::new(SECOND);
        let times = (0..9).map(|_| backoff.fail(Failure::Engine, now).as_secs());
        assert_eq!(times.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        backoff.num_failures = u32::MAX;
        assert_eq!(backoff.fail(Failure::Engine, now), LONGEST);
    }

    #[test]
    fn what_fails_is_tried_again_when_the_time_is_over() {
        let now = Instant::now();
        let mut backoff = Backoff::new(2 * SECOND);
        assert!(backoff.left(now).is_none() && !backoff.has_failed());
        backoff.fail(Failure::Load, now);
        assert_eq!(backoff.left(now + SECOND), Some((Failure::Load, SECOND)));
        assert_eq!(backoff.left(now + 2 * SECOND), None);
        assert!(backoff.has_failed());
        backoff.succeed(now + 2 * SECOND);
        assert!(!backoff.has_failed());
        // One that went well for a moment is no new beginning; one that did for long is, once.
        let (soon, late) = (now + 3 * SECOND, now + 3 * SECOND + STEADY);
        assert_eq!(backoff.fail(Failure::Engine, soon), 4 * SECOND);
        backoff.succeed(soon);
        assert_eq!(backoff.fail(Failure::Engine, late), 2 * SECOND);
        assert_eq!(backoff.fail(Failure::Load, late), 4 * SECOND);
    }
}
