//! Answers that were asked for, or given and not yet written: hyper takes a whole body at once and writes it as its client
//! reads. Those that are given run until the connection has written them or is gone. Shared by the answer and the
//! connection; knows neither.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;

use super::guarded_body::GuardedBody;
use super::shutdown::{Running, Shutdown};

/// Those of one connection.
#[derive(Clone, Debug)]
pub struct Unsent {
    shutdown: Shutdown,
    answers: Arc<Mutex<Answers>>,
}

#[derive(Debug, Default)]
struct Answers {
    /// One is being made.
    is_asked: bool,
    given: Vec<Running>,
}

impl Unsent {
    /// None yet.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            answers: Arc::default(),
        }
    }

    /// A request is there.
    pub fn ask(&self) {
        self.answers().is_asked = true;
    }

    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        let answers = self.answers();
        answers.is_asked || !answers.given.is_empty()
    }

    /// Watches the body of the answer to it.
    pub fn watch(&self, body: Body) -> Body {
        GuardedBody::wrap(body, Given(self.clone()))
    }

    /// All that was given is written: the connection is flushed.
    pub fn clear(&self) {
        self.answers().given.clear();
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when the last of a body was given.
struct Given(Unsent);

impl Drop for Given {
    fn drop(&mut self) {
        let mut answers = self.0.answers();
        answers.is_asked = false;
        answers.given.push(self.0.shutdown.answered());
    }
}
