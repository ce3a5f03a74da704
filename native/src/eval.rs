//! The `eval` command: how well a model predicts a text.

use anyhow::bail;
use pollster::block_on;
use serde_json::{Value, json};
use twoclock_core::engine::Prompt;
use twoclock_core::error::Error;
use twoclock_core::types::SamplingParams;

use crate::engine::HostEngine;

/// How a text was predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Tokens that were predicted: all but the first of each window.
    pub tokens: usize,
    /// Their log-probabilities, natural logarithm.
    pub logprobs: Vec<f32>,
    /// Mean negative log-probability of one, natural logarithm.
    pub nll: f64,
}

impl Evaluation {
    /// Perplexity.
    pub fn ppl(&self) -> f64 {
        self.nll.exp()
    }

    /// For programs, with each token's log-probability or without.
    pub fn as_json(&self, logprobs: bool) -> Value {
        let mut all = json!({"tokens": self.tokens, "nll": self.nll, "ppl": self.ppl()});
        if logprobs {
            all["logprobs"] = json!(self.logprobs);
        }
        all
    }
}

/// Scores a text in windows of the engine's context, each read from its own first token on; `progress` is
/// told after each step how many tokens are read, and of how many.
///
/// # Errors
/// A text of fewer than two tokens, logits that are no numbers, or the device's.
pub fn evaluate(
    engine: &mut HostEngine,
    text: &str,
    mut progress: impl FnMut(usize, usize),
) -> anyhow::Result<Evaluation> {
    let ids = engine.tokenizer().encode(text, true, false)?;
    if ids.len() < 2 {
        bail!(
            "the text has {} tokens, but at least 2 are needed to predict one",
            ids.len()
        );
    }
    let window = engine.core().scheduler().config().max_model_len;
    let params = SamplingParams {
        max_tokens: 0,
        prompt_logprobs: Some(0),
        ..SamplingParams::default()
    };
    let mut all = Vec::new();
    // The last window may be one token long, of which nothing can be predicted.
    let mut read = 0;
    progress(read, ids.len());
    for part in ids.chunks(window).filter(|part| part.len() > 1) {
        let id = engine.add_request(Prompt::TokenIds(part.to_vec()), params.clone())?;
        let mut finished = false;
        while !finished {
            for output in block_on(engine.step())? {
                let output = output.output;
                if output.request_id != id {
                    continue;
                }
                all.extend(output.prompt_logprobs.iter().map(|l| l.logprob));
                if let Some(ended) = output.finished {
                    ended.map_err(Error::from)?;
                    finished = true;
                }
            }
            let request = engine.core().scheduler().request(id);
            let of_part = request.map_or(part.len(), |request| request.num_computed_tokens());
            progress(read + of_part.min(part.len()), ids.len());
        }
        read += part.len();
    }
    let nll = -all.iter().copied().map(f64::from).sum::<f64>();
    if nll.is_nan() {
        bail!("the weights or the device produced logits that are not numbers");
    }
    Ok(Evaluation {
        tokens: all.len(),
        nll: nll / all.len() as f64,
        logprobs: all,
    })
}
