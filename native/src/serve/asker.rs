//! Whether anybody still waits for what is done for a request on a thread of its own, from which nothing can take it
//! back. Knows not what is done.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::api_error::ApiError;

/// Kept by whoever waits. When it is dropped, nobody does.
#[derive(Debug)]
pub struct Asker {
    here: Arc<()>,
    deadline: Instant,
}

/// Looked at by whoever works.
#[derive(Clone, Debug)]
pub struct StillAsked {
    here: Weak<()>,
    deadline: Instant,
}

impl Asker {
    /// Somebody who waits up to then.
    pub fn until(deadline: Instant) -> Self {
        Self {
            here: Arc::default(),
            deadline,
        }
    }

    /// What work looks at.
    pub fn still_asked(&self) -> StillAsked {
        StillAsked {
            here: Arc::downgrade(&self.here),
            deadline: self.deadline,
        }
    }
}

impl StillAsked {
    /// To be called between two pieces of work.
    ///
    /// # Errors
    /// Its time is over; or who asked is gone, and nobody hears it.
    pub fn check(&self) -> Result<(), ApiError> {
        let is_here = self.here.strong_count() > 0;
        match is_here && Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(ApiError::timed_out()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_ends_with_who_asked_or_their_time() {
        let now = Instant::now();
        let asker = Asker::until(now + Duration::from_secs(3600));
        let asked = asker.still_asked();
        assert_eq!(asked.check(), Ok(()));
        drop(asker);
        assert_eq!(asked.check(), Err(ApiError::timed_out()));
        let late = Asker::until(now);
        assert_eq!(late.still_asked().check(), Err(ApiError::timed_out()));
    }
}
