//! Answers that were given and are not yet written: hyper takes a whole body at once and writes it as its client reads.
//! They run until the connection has written them or is gone. Shared by the answer and the connection; knows neither.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;

use super::guarded_body::GuardedBody;
use super::shutdown::{Running, Shutdown};

/// Those of one connection.
#[derive(Clone, Debug)]
pub struct Unsent {
    shutdown: Shutdown,
    answers: Arc<Mutex<Vec<Running>>>,
}

impl Unsent {
    /// None yet.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            answers: Arc::default(),
        }
    }

    /// Watches the body of an answer.
    pub fn watch(&self, body: Body) -> Body {
        GuardedBody::wrap(body, Given(self.clone()))
    }

    /// All that was given is written: the connection is flushed.
    pub fn clear(&self) {
        self.answers().clear();
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Running>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when the last of a body was given.
struct Given(Unsent);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.answers().push(self.0.shutdown.answered());
    }
}
