//! Prompts nobody asked, served before anybody asks: drivers compile kernels when they first run. Owns which prompts;
//! knows no kernel and no driver.

use super::core::EngineCore;
use super::ledger::Ledger;
use crate::clock::Clock;
use crate::error::Result;
use crate::runner::ExecuteModel;
use crate::types::SamplingParams;

/// Tokens of a prompt for each regime of matrices: more than 64 tokens, and up to 64. Their answers are the third.
const PROMPTS: [usize; 2] = [72, 24];

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Serves a few short prompts, as far as the limits let it, and forgets them: no count, no time and no cached
    /// block stays. For an engine that nobody asked anything yet: what others bring meanwhile is counted nowhere.
    ///
    /// # Errors
    /// The device's.
    pub async fn warm_up(&mut self) -> Result<()> {
        let most = self.scheduler.config().max_model_len;
        let ledger = std::mem::replace(&mut self.ledger, Ledger::new(most));
        let step_costs = self.step_costs.take();
        let kv_slot_seconds = self.kv_slot_seconds;
        let served = self.serve_prompts(most).await;
        self.ledger = ledger;
        self.step_costs = step_costs;
        self.kv_slot_seconds = kv_slot_seconds;
        self.scheduler.reset_prefix_cache();
        served
    }

    async fn serve_prompts(&mut self, max_model_len: usize) -> Result<()> {
        for (seed, num_tokens) in PROMPTS.into_iter().enumerate() {
            let num_tokens = num_tokens.min(max_model_len.saturating_sub(2));
            if num_tokens == 0 {
                continue;
            }
            let params = SamplingParams {
                temperature: 1.0,
                seed: seed as u64,
                max_tokens: 2,
                ignore_eos: true,
                ..SamplingParams::default()
            };
            self.generate(vec![(vec![0; num_tokens], params)]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::paged_hash::{config, engine, serve, served_alone};
    use crate::sched::SchedulerConfig;
    use pollster::block_on;

    #[test]
    fn nothing_is_left_of_it() {
        for max_model_len in [config().max_model_len, 70, 4, 1] {
            let mut engine = engine(SchedulerConfig {
                max_model_len,
                ..config()
            });
            let (metrics, gauges) = (format!("{:?}", engine.metrics()), engine.gauges());
            block_on(engine.warm_up()).unwrap();
            assert!(!engine.has_unfinished_requests());
            assert_eq!(format!("{:?}", engine.metrics()), metrics);
            assert_eq!(engine.gauges(), gauges);
            assert!(engine.scheduler().check_integrity().is_ok());
        }
        let mut engine = engine(config());
        block_on(engine.warm_up()).unwrap();
        assert_eq!(serve(&mut engine, 0..8), served_alone());
    }
}
