//! How the server ends: first nothing new is taken while what runs ends, then all of it. Owns the count of
//! what runs; knows no signal and no engine.

use std::sync::Arc;

use tokio::sync::watch;

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are taken.
    #[default]
    Open,
    /// None is taken; those that run may end.
    Draining,
    /// Everything ends now.
    Stopped,
}

/// The phase, and the requests that run, for everybody.
#[derive(Clone, Debug)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
    running: Arc<watch::Sender<usize>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            phase: Arc::new(watch::Sender::new(Phase::Open)),
            running: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Shutdown {
    /// How far it has come.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Goes on to this phase; never back.
    pub fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let further = to > *phase;
            *phase = to.max(*phase);
            further
        });
    }

    /// Resolves when this phase is reached.
    pub async fn reached(&self, phase: Phase) {
        let mut seen = self.phase.subscribe();
        // The sender lives as long as this does.
        let _ = seen.wait_for(|now| *now >= phase).await;
    }

    /// Takes a request in, unless it is too late. It runs until the guard is dropped.
    pub fn enter(&self) -> Option<Running> {
        // Counted before the phase is looked at, so that who waits for none to run sees it.
        let running = Running::new(Arc::clone(&self.running));
        (self.phase() == Phase::Open).then_some(running)
    }

    /// An answer that was given, whatever the phase. It runs until it is written and the guard dropped.
    pub fn answered(&self) -> Running {
        Running::new(Arc::clone(&self.running))
    }

    /// Requests that run.
    pub fn num_running(&self) -> usize {
        *self.running.borrow()
    }

    /// Resolves when none runs.
    pub async fn idle(&self) {
        let mut seen = self.running.subscribe();
        let _ = seen.wait_for(|running| *running == 0).await;
    }
}

/// A request that runs.
#[derive(Debug)]
pub struct Running(Arc<watch::Sender<usize>>);

impl Running {
    fn new(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|running| *running += 1);
        Self(count)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollster::block_on;

    #[test]
    fn what_runs_is_waited_for_and_nothing_new_begins() {
        let shutdown = Shutdown::default();
        let running = shutdown.enter().unwrap();
        shutdown.advance(Phase::Draining);
        block_on(shutdown.reached(Phase::Draining));
        assert!(shutdown.enter().is_none());
        assert_eq!(shutdown.num_running(), 1);
        shutdown.advance(Phase::Open);
        assert_eq!(shutdown.phase(), Phase::Draining);
        drop(running);
        block_on(shutdown.idle());
    }
}
