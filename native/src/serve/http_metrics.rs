//! Requests counted by path and status. Paths nobody serves are one, so that clients cannot make more.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::app::PATHS;

/// The counts.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    counts: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl HttpMetrics {
    /// Counts a request that is over.
    pub fn count(&self, path: &str, status: u16) {
        let known = |known: &&&'static str| match known.strip_suffix("{model}") {
            Some(beginning) => path.starts_with(beginning),
            None => **known == path,
        };
        let path = PATHS.iter().find(known).copied().unwrap_or("other");
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((path, status)).or_default() += 1;
    }

    /// All counts.
    pub fn counts(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
