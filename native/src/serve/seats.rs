//! How many models may be loaded at once. Knows no model.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Room for so many models.
#[derive(Debug)]
pub struct Seats {
    free: Mutex<usize>,
    /// One may be had that could not before.
    changed: Notify,
}

impl Seats {
    /// Room for `num` models.
    pub fn new(num: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(num),
            changed: Notify::new(),
        })
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one that is free.
    pub fn try_take(self: &Arc<Self>) -> Option<Seat> {
        let mut free = self.free();
        *free = free.checked_sub(1)?;
        Some(Seat(Arc::clone(self)))
    }

    /// Resolves when trying again may help, from when this was called.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// A model is used no more, and could make room.
    pub fn tell(&self) {
        self.changed.notify_waiters();
    }
}

/// A loaded model's room.
#[derive(Debug)]
pub struct Seat(Arc<Seats>);

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_comes_back() {
        let seats = Seats::new(1);
        let seat = seats.try_take().unwrap();
        assert!(seats.try_take().is_none());
        drop(seat);
        assert!(seats.try_take().is_some());
    }
}
