//! Time as the engine sees it. Knows no host clock: natively, in the browser and in a simulation
//! it is a different one.

use std::time::Duration;

/// A monotonic clock.
pub trait Clock {
    /// Time since some fixed moment of this clock's choosing.
    fn now(&self) -> Duration;
}

/// A clock that stands still until it is told otherwise; for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(std::cell::Cell<Duration>);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.set(self.0.get() + by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.0.get()
    }
}
