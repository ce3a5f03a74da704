//! Requests that one call adds and waits for. Owns that they end with the call, however that ends, and
//! that nobody else's outputs are lost by it. Knows no text.

use super::core::{EngineCore, EngineOutput};
use super::recovery::Recovery;
use crate::clock::Clock;
use crate::error::Result;
use crate::runner::ExecuteModel;
use crate::types::RequestId;
use std::collections::BTreeSet;

/// Requests under way, and the engine that computes them. Dropping it aborts those that are not over,
/// be it that the call met an error or that whoever awaited it went away.
pub(super) struct Awaited<'a, R: ExecuteModel, C: Clock> {
    core: &'a mut EngineCore<R, C>,
    ids: BTreeSet<RequestId>,
}

impl<'a, R: ExecuteModel, C: Clock> Awaited<'a, R, C> {
    /// Of requests that were added just now.
    pub(super) fn new(
        core: &'a mut EngineCore<R, C>,
        ids: impl IntoIterator<Item = RequestId>,
    ) -> Self {
        Self {
            core,
            ids: ids.into_iter().collect(),
        }
    }

    /// Computes one step and says what it brought these requests; what it brought others comes out of
    /// the next [`EngineCore::step`]. A lost device is replaced, where another is to be had.
    pub(super) async fn step(&mut self, recovery: &mut Recovery<R>) -> Result<Vec<EngineOutput>> {
        loop {
            match self.core.compute_step().await {
                Ok(outputs) => {
                    recovery.succeeded();
                    let is_own = |output: &EngineOutput| self.ids.contains(&output.request_id);
                    let (own, others): (Vec<_>, Vec<_>) = outputs.into_iter().partition(is_own);
                    self.core.undelivered.extend(others);
                    return Ok(own);
                }
                Err(error) if error.is_device_lost() => {
                    recovery.replace_runner(self.core, error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends an answer at its stop string.
    pub(super) fn stop(&mut self, request_id: RequestId, index: usize) {
        self.core.stop(request_id, index);
    }
}

impl<R: ExecuteModel, C: Clock> Drop for Awaited<'_, R, C> {
    fn drop(&mut self) {
        for id in std::mem::take(&mut self.ids) {
            self.core.abort(id);
        }
        if self.core.scheduler.num_unfinished_requests() == 0 {
            self.core.give_up_steps_in_flight();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::paged_hash::{Answer, config, drive, engine, prompt, served_alone};
    use crate::types::{PoolingParams, TokenId};
    use pollster::block_on;
    use std::collections::BTreeMap;
    use std::task::{Context, Waker};

    /// Whoever awaits `generate` or `embed` goes away in the middle of a step: their requests are over,
    /// and what steps brought others before, and bring them later, is all there.
    #[test]
    fn a_call_given_up_half_way_takes_only_its_own_along() {
        let alone = served_alone();
        for embeds in [false, true] {
            let mut engine = engine(config());
            let [over, goes_on] = [1, 2].map(|index| {
                let (ids, params) = prompt(index);
                let max_tokens = [60, 100][index - 1];
                let params = crate::types::SamplingParams {
                    max_tokens,
                    ..params
                };
                engine.add_request(ids, params).unwrap()
            });
            block_on(engine.generate(vec![prompt(0)])).unwrap();
            engine.runner_mut().late = true;
            let mut context = Context::from_waker(Waker::noop());
            let ids: Vec<TokenId> = prompt(7).0;
            if embeds {
                let call = engine.embed(vec![(ids, PoolingParams::default())]);
                assert!(std::pin::pin!(call).poll(&mut context).is_pending());
            } else {
                let call = engine.generate(vec![(ids, prompt(7).1), prompt(3)]);
                assert!(std::pin::pin!(call).poll(&mut context).is_pending());
            }
            assert_eq!(engine.scheduler().num_unfinished_requests(), 1);
            engine.scheduler().check_integrity().unwrap();
            let mut answers = BTreeMap::<_, Answer>::new();
            drive(&mut engine, &mut answers);
            assert_eq!(answers.len(), 2);
            assert_eq!(answers[&over], alone[1]);
            assert_eq!(answers[&goes_on].token_ids[..60], alone[2].token_ids);
            assert_eq!(answers[&goes_on].token_ids.len(), 100);
            let free = engine.scheduler().kv_cache().num_free_blocks();
            assert_eq!(free, 399);
        }
    }
}
