//! Requests counted by path and status. Paths nobody serves are one, so that clients cannot make more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::app::PATHS;

/// Paths whose answers may be streams.
const STREAMED: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
];
/// What mostly cuts streams: these are counted from 0, so that the first one is seen as an increase.
const CUTS: [u16; 4] = [499, 500, 503, 504];

/// Counts by path and status.
pub type Counts = BTreeMap<(&'static str, u16), u64>;

/// The counts.
#[derive(Debug)]
pub struct HttpMetrics {
    requests: Mutex<Counts>,
    streams_cut: Mutex<Counts>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let cuts = STREAMED
            .iter()
            .flat_map(|path| CUTS.map(|cut| (*path, cut)));
        Self {
            requests: Mutex::default(),
            streams_cut: Mutex::new(cuts.map(|key| (key, 0)).collect()),
        }
    }
}

impl HttpMetrics {
    /// Counts a request that is over, by the status of its head.
    pub fn count(&self, path: &str, status: u16) {
        *lock(&self.requests)
            .entry((known(path), status))
            .or_default() += 1;
    }

    /// Counts a stream that did not come to its end, by the status it would have had.
    pub fn count_cut(&self, path: &str, status: u16) {
        *lock(&self.streams_cut)
            .entry((known(path), status))
            .or_default() += 1;
    }

    /// All requests.
    pub fn requests(&self) -> Counts {
        lock(&self.requests).clone()
    }

    /// Of them the streams that were cut.
    pub fn streams_cut(&self) -> Counts {
        lock(&self.streams_cut).clone()
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path as the counts call it.
fn known(path: &str) -> &'static str {
    let is_it = |known: &&&'static str| match known.strip_suffix("{model}") {
        Some(beginning) => path.starts_with(beginning),
        None => **known == path,
    };
    PATHS.iter().find(is_it).copied().unwrap_or("other")
}
