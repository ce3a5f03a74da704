//! What a step computes, summed up sequence by sequence so that one more costs nothing to try.
//! Knows a model's shape and no device.

use super::hardware::{PerRegime, Regime};
use super::model_shape::ModelShape;

/// One sequence's part in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLoad {
    /// Tokens computed now.
    pub num_tokens: usize,
    /// Tokens before them, in the cache.
    pub num_computed_tokens: usize,
    /// Whether its last token's logits are wanted.
    pub samples: bool,
}

/// Sums over the sequences of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLoad {
    /// Sequences.
    pub num_seqs: usize,
    /// Tokens.
    pub num_tokens: usize,
    /// Rows of logits.
    pub num_logits_rows: usize,
    /// Bytes of keys and values read and written. A key is read once a sequence: what several
    /// queries want of it comes out of a cache on the chip.
    pub kv_bytes: f64,
    /// Operations of attention, by the queries of the sequence they are for.
    pub attention_flops: PerRegime,
}

impl Default for StepLoad {
    fn default() -> Self {
        Self {
            num_seqs: 0,
            num_tokens: 0,
            num_logits_rows: 0,
            kv_bytes: 0.0,
            attention_flops: PerRegime {
                gemv: 0.0,
                skinny: 0.0,
                gemm: 0.0,
            },
        }
    }
}

impl StepLoad {
    /// The sum of these.
    pub fn of(shape: &ModelShape, sequences: impl IntoIterator<Item = SequenceLoad>) -> Self {
        let mut load = Self::default();
        for sequence in sequences {
            load.add(shape, sequence);
        }
        load
    }

    /// One sequence more.
    pub fn add(&mut self, shape: &ModelShape, sequence: SequenceLoad) {
        let SequenceLoad {
            num_tokens,
            num_computed_tokens,
            samples,
        } = sequence;
        self.num_seqs += 1;
        self.num_tokens += num_tokens;
        self.num_logits_rows += usize::from(samples);
        // A score is a dot product over a head, and its value joins the sum of another.
        let flops_per_pair = 4.0 * (shape.num_attention_heads * shape.head_dim) as f64;
        for group in &shape.groups {
            let layers = group.num_layers as f64;
            let keys = (num_computed_tokens + num_tokens) as f64;
            let read = match group.window {
                None => keys,
                Some(window) => keys.min((window + num_tokens) as f64 - 1.0),
            };
            self.kv_bytes += (read + num_tokens as f64) * layers * shape.kv_bytes_per_layer;
            let pairs = pairs(num_computed_tokens, num_tokens, group.window);
            *self.attention_flops.get_mut(Regime::of(num_tokens)) +=
                flops_per_pair * pairs * layers;
        }
    }
}

/// Pairs of a query and a key it sees, for `n` queries after `before` tokens.
fn pairs(before: usize, n: usize, window: Option<usize>) -> f64 {
    let window = window.unwrap_or(usize::MAX);
    // Queries whose window does not bind yet see one key more each than the last.
    let growing = n.min(window.saturating_sub(before));
    let (b, g) = (before as f64, growing as f64);
    let grown = g * b + g * (g + 1.0) / 2.0;
    match n - growing {
        0 => grown,
        rest => grown + rest as f64 * window as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_that_counting_gives() {
        for window in [None, Some(1), Some(5), Some(12), Some(100)] {
            for before in [0, 1, 4, 5, 11, 30] {
                for n in [1, 2, 7, 40] {
                    let sees = |q: usize| (before + q + 1).min(window.unwrap_or(usize::MAX));
                    let counted: usize = (0..n).map(sees).sum();
                    assert_eq!(
                        pairs(before, n, window),
                        counted as f64,
                        "{window:?} {before} {n}"
                    );
                }
            }
        }
    }
}
