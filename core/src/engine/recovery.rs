//! Another runner in the place of one whose device was lost. Owns how often it is tried; knows no
//! device and no time but what the factory waits.

use super::core::EngineCore;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::runner::ExecuteModel;
use std::pin::Pin;
use std::time::Duration;

/// Opens a device and loads the model onto it, again and again if need be.
#[allow(
    async_fn_in_trait,
    reason = "an engine and its executor stay on one thread, so no Send bound is wanted"
)]
pub trait RunnerFactory {
    /// What it makes.
    type Runner: ExecuteModel;

    /// A new runner for the model and the limits of the lost one.
    ///
    /// # Errors
    /// No device, a model that cannot be read any more. It may be asked again.
    async fn create(&mut self) -> Result<Self::Runner>;

    /// Lets a while go by before the next attempt.
    async fn wait(&mut self, span: Duration);
}

/// How often a lost device is replaced, and how long it is given to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts until a step succeeds. Losing the new device at once counts as one too.
    pub max_attempts: usize,
    /// Wait before the second attempt; each later one waits twice as long.
    pub first_wait: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts within four seconds: a driver that resets is back by then.
    fn default() -> Self {
        Self {
            max_attempts: 5,
            first_wait: Duration::from_millis(250),
        }
    }
}

impl RetryPolicy {
    /// Wait before attempt `attempt`, counted from 0.
    pub(super) fn wait_before(&self, attempt: usize) -> Option<Duration> {
        let doublings = u32::try_from(attempt.checked_sub(1)?).unwrap_or(u32::MAX);
        let factor = 2u32.checked_pow(doublings).unwrap_or(u32::MAX);
        Some(self.first_wait.saturating_mul(factor))
    }
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A [`RunnerFactory`] whose type nobody has to name.
trait AnyFactory<R> {
    fn create(&mut self) -> Later<'_, Result<R>>;
    fn wait(&mut self, span: Duration) -> Later<'_, ()>;
}

impl<F: RunnerFactory> AnyFactory<F::Runner> for F {
    fn create(&mut self) -> Later<'_, Result<F::Runner>> {
        Box::pin(RunnerFactory::create(self))
    }

    fn wait(&mut self, span: Duration) -> Later<'_, ()> {
        Box::pin(RunnerFactory::wait(self, span))
    }
}

/// Where another runner comes from, if anywhere.
pub(super) struct Recovery<R> {
    factory: Option<Box<dyn AnyFactory<R>>>,
    policy: RetryPolicy,
    /// Devices asked for since a step last succeeded.
    attempts: usize,
}

impl<R: ExecuteModel> Recovery<R> {
    /// There is no other.
    pub(super) fn none() -> Self {
        Self {
            factory: None,
            policy: RetryPolicy::default(),
            attempts: 0,
        }
    }

    /// A factory makes them, as often as the policy has it.
    pub(super) fn new<F>(factory: F, policy: RetryPolicy) -> Self
    where
        F: RunnerFactory<Runner = R> + 'static,
    {
        Self {
            factory: Some(Box::new(factory)),
            policy,
            attempts: 0,
        }
    }

    /// A step succeeded.
    pub(super) fn succeeded(&mut self) {
        self.attempts = 0;
    }

    /// Replaces the runner of an engine, whose device was lost in this way.
    ///
    /// # Errors
    /// There is no factory, or it was tried as often as the policy has it.
    pub(super) async fn replace_runner<C: Clock>(
        &mut self,
        core: &mut EngineCore<R, C>,
        lost: Error,
    ) -> Result<()> {
        let mut last = lost;
        let Some(factory) = &mut self.factory else {
            return Err(last);
        };
        // The device's memory must be free for the next one.
        core.runner_mut().release();
        while self.attempts < self.policy.max_attempts {
            if let Some(span) = self.policy.wait_before(self.attempts) {
                factory.wait(span).await;
            }
            self.attempts += 1;
            match factory.create().await {
                Ok(runner) => {
                    core.replace_runner(runner);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(Error::NoOtherDevice {
            attempts: self.attempts,
            last: Box::new(last),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_waits_twice_as_long() {
        let policy = RetryPolicy::default();
        let waits = (0..5).map(|n| policy.wait_before(n).map(|w| w.as_millis()));
        let expected = [None, Some(250), Some(500), Some(1000), Some(2000)];
        assert_eq!(waits.collect::<Vec<_>>(), expected);
        assert!(policy.wait_before(usize::MAX) > policy.wait_before(9));
    }
}
