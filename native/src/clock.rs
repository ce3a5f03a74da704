//! The host's monotonic clock.

use std::sync::LazyLock;
use std::time::{Duration, Instant};
use twoclock_core::clock::Clock;

static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time since the first one was made: all of a program say the same.
#[derive(Clone, Copy, Debug)]
pub struct HostClock(Instant);

impl Default for HostClock {
    fn default() -> Self {
        Self(*BEGINNING)
    }
}

impl Clock for HostClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
