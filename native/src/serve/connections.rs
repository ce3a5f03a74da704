//! Connections that are open: so many at most. Where one more comes, those that lie idle are asked to make room for it;
//! a few more have room beside them for who only comes to hear that the server ends. Knows no protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Places beside the others for who comes late. Files that are kept for what is no connection are enough for them.
const LATE: usize = 32;

/// The places, for everybody.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Places>);

#[derive(Debug)]
struct Places {
    most: u32,
    free: Arc<Semaphore>,
    late: Arc<Semaphore>,
    is_full: AtomicBool,
    /// Told each time that somebody waits for a place.
    crowded: watch::Sender<()>,
}

/// A connection's place until it is dropped.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
    crowded: watch::Receiver<()>,
}

impl Connections {
    /// Room for so many.
    pub fn new(most: usize) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        Self(Arc::new(Places {
            most,
            free: Arc::new(Semaphore::new(most as usize)),
            late: Arc::new(Semaphore::new(LATE)),
            is_full: AtomicBool::new(false),
            crowded: watch::Sender::new(()),
        }))
    }

    /// How many there may be.
    pub fn most(&self) -> usize {
        self.0.most as usize
    }

    /// How many there are.
    pub fn num_open(&self) -> usize {
        self.most() - self.0.free.available_permits()
    }

    /// A place for one more, once there is one. That there is none is said once until a tenth of them is free.
    pub async fn place(&self) -> Place {
        let places = &*self.0;
        let free = Arc::clone(&places.free);
        let permit = if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
            // Where as many come as go it would else be said with each of them.
            let few = (places.most / 10).max(1).min(places.most.saturating_sub(1));
            if free.available_permits() >= few as usize
                && places.is_full.swap(false, Ordering::Relaxed)
            {
                tracing::info!("there is room for connections again");
            }
            permit
        } else {
            if !places.is_full.swap(true, Ordering::Relaxed) {
                let max_connections = places.most;
                tracing::warn!(
                    max_connections,
                    "as many connections are open as may be (--max-connections): idle ones are closed, and who comes \
                     waits, also who asks for /health"
                );
            }
            places.crowded.send_replace(());
            free.acquire_owned().await.expect("nobody closes it")
        };
        self.taken(permit)
    }

    /// A place for one who comes while the server ends, and is soon gone: where none is free, beside those who have
    /// theirs, whom nobody asks for room.
    pub async fn late_place(&self) -> Place {
        let (free, late) = (Arc::clone(&self.0.free), Arc::clone(&self.0.late));
        let permit = match free.try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => late.acquire_owned().await.expect("nobody closes it"),
        };
        self.taken(permit)
    }

    fn taken(&self, permit: OwnedSemaphorePermit) -> Place {
        Place {
            _permit: permit,
            crowded: self.0.crowded.subscribe(),
        }
    }
}

impl Place {
    /// Resolves when somebody waits for a place.
    pub async fn is_wanted(&mut self) {
        // The sender lives as long as the places do; once it is gone nobody waits.
        if self.crowded.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use pollster::block_on;

    #[test]
    fn who_has_a_place_hears_that_another_wants_one() {
        let connections = Connections::new(2);
        let mut places = [(); 2].map(|()| block_on(connections.place()));
        assert_eq!((connections.num_open(), connections.most()), (2, 2));
        let cx = &mut Context::from_waker(Waker::noop());
        for place in &mut places {
            assert!(pin!(place.is_wanted()).poll(cx).is_pending());
        }
        let mut third = Box::pin(connections.place());
        assert!(third.as_mut().poll(cx).is_pending());
        for place in &mut places {
            assert!(pin!(place.is_wanted()).poll(cx).is_ready());
            // It is told once.
            assert!(pin!(place.is_wanted()).poll(cx).is_pending());
        }
        let [first, second] = places;
        drop(first);
        let mut third = block_on(third);
        // Who came last has not heard of the wish that brought it.
        assert!(pin!(third.is_wanted()).poll(cx).is_pending());
        drop((second, third));
        assert_eq!(connections.num_open(), 0);
    }

    #[test]
    fn a_few_who_come_late_have_room_beside_the_others() {
        let connections = Connections::new(1);
        let first = block_on(connections.late_place());
        assert_eq!(connections.num_open(), 1);
        let mut late: Vec<_> = (0..LATE)
            .map(|_| block_on(connections.late_place()))
            .collect();
        let mut waits = Box::pin(connections.late_place());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(cx).is_pending());
        late.pop();
        assert!(waits.as_mut().poll(cx).is_ready());
        drop((first, late));
        assert_eq!(connections.num_open(), 0);
    }

    #[test]
    fn there_is_room_again_when_a_tenth_is_free_and_not_with_each_that_goes() {
        for (most, few) in [(1, 0), (2, 1), (4, 1), (40, 4)] {
            let connections = Connections::new(most);
            let is_full = || connections.0.is_full.load(Ordering::Relaxed);
            let mut places: Vec<_> = (0..most).map(|_| block_on(connections.place())).collect();
            let mut waits = Box::pin(connections.place());
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(waits.as_mut().poll(cx).is_pending() && is_full());
            drop(waits);
            for _ in 0..few {
                places.pop();
                places.push(block_on(connections.place()));
                assert!(is_full(), "as many go as come of {most}");
                places.pop();
            }
            places.pop();
            places.push(block_on(connections.place()));
            assert!(!is_full(), "{few} of {most} are free");
        }
    }
}
