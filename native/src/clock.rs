//! The host's monotonic clock.

use std::time::{Duration, Instant};
use twoclock_core::clock::Clock;

/// Time since it was made.
#[derive(Clone, Copy, Debug)]
pub struct HostClock(Instant);

impl Default for HostClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for HostClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
