//! Prompts nobody asked, served before anybody asks: drivers compile kernels when they first run. Owns which prompts;
//! knows no kernel and no driver.

use super::core::EngineCore;
use super::ledger::Ledger;
use crate::clock::Clock;
use crate::error::Result;
use crate::runner::ExecuteModel;
use crate::types::{SamplingParams, TokenId};

/// Answers drawn together, and the tokens of their prompts together: more than 64, up to 64, and few; answers are as
/// many as a matrix-vector body takes. Each is a regime of its own.
const WAVES: [(usize, usize); 4] = [(8, 72), (4, 24), (2, 4), (1, 1)];

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Serves a few short prompts, as far as the limits let it, so that what most requests run is compiled: prompts
    /// and answers of every number of tokens a matrix has a body for, drawn greedily and with cuts and penalties. Long
    /// contexts, forms, log-probabilities and embeddings are not among them.
    ///
    /// Nothing of it stays: no count, no time, no cached block. For an engine that nobody asked anything and that
    /// [predicts](Self::set_cost_model) no steps yet.
    ///
    /// # Errors
    /// The device's, and what a prompt met.
    pub async fn warm_up(&mut self) -> Result<()> {
        let config = self.scheduler.config();
        let (max_model_len, max_num_seqs) = (config.max_model_len, config.max_num_seqs);
        let kv_slot_seconds = self.kv_slot_seconds;
        for (wave, (num_answers, num_tokens)) in WAVES.into_iter().enumerate() {
            let num_answers = num_answers.min(max_num_seqs);
            // Two are drawn behind each prompt.
            let most = max_model_len.saturating_sub(2);
            let num_tokens = num_tokens.div_ceil(num_answers).min(most);
            if num_tokens == 0 {
                break;
            }
            let requests = (0..num_answers).map(|n| {
                // Each has a token of its own, so that none is spared what another computed.
                let token = ((wave * 8 + n) % self.vocab_size) as TokenId;
                (vec![token; num_tokens], params(wave, n))
            });
            for answer in self.generate(requests.collect()).await? {
                answer?;
            }
        }
        self.ledger = Ledger::new(max_model_len);
        self.kv_slot_seconds = kv_slot_seconds;
        self.scheduler.reset_prefix_cache();
        Ok(())
    }
}

/// A token with the prompt and one behind it, drawn in another way by every second. One wave has penalties: who has
/// none does not wait for whom they hold up, and would be computed apart.
fn params(wave: usize, n: usize) -> SamplingParams {
    let params = SamplingParams {
        max_tokens: 2,
        ignore_eos: true,
        seed: n as u64,
        repetition_penalty: if wave == 1 { 1.1 } else { 1.0 },
        ..SamplingParams::default()
    };
    match (wave + n).is_multiple_of(2) {
        true => params,
        false => SamplingParams {
            temperature: 1.0,
            top_k: 40,
            top_p: 0.9,
            ..params
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::paged_hash::{config, engine, serve, served_alone};
    use crate::sched::SchedulerConfig;
    use pollster::block_on;

    #[test]
    fn every_regime_has_run() {
        for (block_size, max_num_seqs) in [(16, 16), (32, 16), (16, 8), (16, 4), (16, 3), (16, 1)] {
            let mut engine = engine(SchedulerConfig {
                block_size,
                max_num_seqs,
                ..config()
            });
            block_on(engine.warm_up()).unwrap();
            let ran = &engine.runner().step_tokens;
            // Prompts, and answers as far as so many are drawn together.
            let regimes = [65..=512, 9..=64, 8..=8, 4..=4, 2..=2, 1..=1];
            for tokens in regimes {
                let has_run = ran.iter().any(|n| tokens.contains(n));
                let answers = tokens.end();
                let may_run = *answers > 8 || *answers <= max_num_seqs;
                assert!(
                    has_run || !may_run,
                    "{tokens:?} of {ran:?}, {max_num_seqs} together"
                );
            }
        }
    }

    #[test]
    fn nothing_is_left_of_it() {
        for max_model_len in [config().max_model_len, 70, 4, 3, 2, 1] {
            let mut engine = engine(SchedulerConfig {
                max_model_len,
                ..config()
            });
            let (metrics, gauges) = (format!("{:?}", engine.metrics()), engine.gauges());
            block_on(engine.warm_up()).unwrap();
            assert_eq!(engine.runner().step_tokens.is_empty(), max_model_len < 3);
            assert!(!engine.has_unfinished_requests());
            assert_eq!(format!("{:?}", engine.metrics()), metrics);
            assert_eq!(engine.gauges(), gauges);
            assert!(engine.scheduler().check_integrity().is_ok());
        }
        let mut engine = engine(config());
        block_on(engine.warm_up()).unwrap();
        assert_eq!(serve(&mut engine, 0..8), served_alone());
    }

    #[test]
    fn what_a_device_meets_is_told() {
        let mut engine = engine(config());
        engine.runner_mut().fail_next = true;
        assert!(block_on(engine.warm_up()).is_err());
    }
}
