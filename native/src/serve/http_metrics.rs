//! Requests counted by path and status. Paths nobody serves are one, so that clients cannot make more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::paths::PATHS;

/// Paths whose answers may be streams.
const STREAMED: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
];
/// What mostly ends requests to models. These and what mostly cuts streams are counted from 0, so that the first one is
/// seen as an increase.
const ENDS: [u16; 7] = [200, 400, 429, 499, 500, 503, 504];
/// What mostly cuts streams.
const CUTS: [u16; 4] = [499, 500, 503, 504];

/// Counts by path and status.
pub type Counts = BTreeMap<(&'static str, u16), u64>;

/// The counts, for everybody.
#[derive(Clone, Debug)]
pub struct HttpMetrics {
    requests: Arc<Mutex<Counts>>,
    streams_cut: Arc<Mutex<Counts>>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let none = |path: &&'static str, statuses: &[u16]| {
            let keys = statuses.iter().map(|status| ((*path, *status), 0));
            keys.collect::<Vec<_>>()
        };
        let computed = STREAMED.iter().chain([&"/v1/embeddings"]);
        let requests = computed.flat_map(|path| none(path, &ENDS));
        let streams_cut = STREAMED.iter().flat_map(|path| none(path, &CUTS));
        Self {
            requests: Arc::new(Mutex::new(requests.collect())),
            streams_cut: Arc::new(Mutex::new(streams_cut.collect())),
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

    /// Counts an answer that did not come to the end that its head promised, by the status it would have had.
    pub fn count_cut(&self, path: &str, status: u16) {
        *lock(&self.streams_cut)
            .entry((known(path), status))
            .or_default() += 1;
    }

    /// All requests.
    pub fn requests(&self) -> Counts {
        lock(&self.requests).clone()
    }

    /// Of them those that were cut.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_is_an_increase() {
        let counts = HttpMetrics::default();
        let faults = [("/v1/completions", 500), ("/v1/embeddings", 503)];
        for key in faults {
            assert_eq!(counts.requests()[&key], 0, "{key:?}");
            counts.count(key.0, key.1);
            assert_eq!(counts.requests()[&key], 1, "{key:?}");
        }
        let cut = ("/v1/messages", 504);
        assert_eq!(counts.streams_cut()[&cut], 0);
        counts.count_cut(cut.0, cut.1);
        assert_eq!(counts.streams_cut()[&cut], 1);
        // Only what models compute: others cannot be streamed, or are asked by what watches.
        let paths = |counts: Counts| counts.into_keys().all(|(path, _)| path.starts_with("/v1/"));
        assert!(paths(counts.requests()) && paths(counts.streams_cut()));
    }
}
