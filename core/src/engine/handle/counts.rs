//! What an engine counted when it was last asked, and who waits until it has answered again: it does between two steps.
//! Knows no engine, and forgets who waits no longer.

use super::mailbox::{Health, Load, Mailbox};
use crate::engine::metrics::MetricFamily;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What was counted, and who waits for more.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) families: Arc<Vec<MetricFamily>>,
    /// Times it was asked, and up to which of them it answered.
    asked: u64,
    answered: u64,
    /// By their numbers.
    waiting: BTreeMap<u64, Waker>,
}

impl Counts {
    /// Somebody asks. Gives their number.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    pub(super) fn is_answered(&self, number: u64) -> bool {
        self.answered >= number
    }

    pub(super) fn wait(&mut self, number: u64, waker: &Waker) {
        self.waiting.insert(number, waker.clone());
    }

    /// Somebody waits no longer.
    pub(super) fn forget(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// All that asked have their answer.
    pub(super) fn answer(&mut self, families: Vec<MetricFamily>) {
        self.families = Arc::new(families);
        self.answered = self.asked;
    }

    /// Those that are to look again.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }
}

/// What an engine counts, once it has answered; of before, where it cannot.
#[derive(Debug)]
pub(super) struct AskCounts<'a> {
    pub(super) mailbox: &'a Mailbox,
    pub(super) number: u64,
}

impl Future for AskCounts<'_> {
    type Output = (Arc<Vec<MetricFamily>>, Health, Load);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.mailbox.poll_counts(self.number, cx)
    }
}

impl Drop for AskCounts<'_> {
    fn drop(&mut self) {
        self.mailbox.forget_asking(self.number);
    }
}
