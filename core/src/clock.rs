//! Time as the engine sees it. Knows no host clock: natively, in the browser and in a simulation
//! it is a different one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A monotonic clock.
pub trait Clock {
    /// Time since some fixed moment of this clock's choosing.
    fn now(&self) -> Duration;
}

/// A clock that stands still until it is told otherwise; for tests and simulations. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Duration>>);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
