//! How long a step takes: predicted by the roofline, refined by what steps took. Knows the numbers
//! of a model and of a device; has no clock, measures nothing itself.
//!
//! A step is two parts that follow each other in every layer, matrices and attention, and what it
//! costs besides. Each part takes as long as the slower of its bytes and its operations (S. Williams,
//! A. Waterman, D. Patterson, "Roofline", CACM 2009). They are not one part, because attention of many
//! sequences stays bound by memory while a prompt's matrices are bound by arithmetic, and the one
//! does not hide the other.

use super::hardware::{Hardware, Regime};
use super::model_shape::ModelShape;
use super::step_load::{SequenceLoad, StepLoad};
use super::swap::PreemptionCost;

/// What a step waits for most of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes.
    Memory,
    /// Operations.
    Compute,
}

/// A step's predicted cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Bytes moved in device memory.
    pub bytes: f64,
    /// Operations.
    pub flops: f64,
    /// Time, overhead included.
    pub seconds: f64,
    /// What it waits for.
    pub bound: Bound,
}

impl StepCost {
    /// Operations a byte.
    pub fn intensity(&self) -> f64 {
        self.flops / self.bytes
    }

    /// Operations a second, if it takes so long.
    pub fn achieved_flops(&self) -> f64 {
        self.flops / self.seconds
    }
}

/// One part under its roof.
#[derive(Clone, Copy)]
struct Part {
    bytes: f64,
    flops: f64,
    memory_seconds: f64,
    compute_seconds: f64,
}

impl Part {
    fn seconds(&self) -> f64 {
        self.memory_seconds.max(self.compute_seconds)
    }
}

/// Predicts steps of one model on one device.
#[derive(Clone, Debug)]
pub struct CostModel {
    shape: ModelShape,
    /// As measured so far.
    hardware: Hardware,
    /// Tokens a tile of a matrix product holds.
    token_tile: usize,
    /// Steps that told something of the bandwidth, and of each regime's rate.
    num_observed: [u32; 4],
}

/// Weight of a new measurement, once there are some.
const MEMORY_OF_MEASUREMENTS: f64 = 0.1;
/// A measurement counts as at most this much more or less than what was thought so far, so that a
/// step another program delayed spoils little...
const MOST_SURPRISE: f64 = 2.0;
/// ... but the first few may say anything.
const NUM_TRUSTED: u32 = 4;
/// Steps of so few tokens tell the bandwidth, whatever bounds them: no step takes less. The others,
/// given that, tell their rate.
const BANDWIDTH_TOKENS: usize = 1;
/// A part that takes this share of what its bytes need is bound by them.
const BOUND_BY_BYTES: f64 = 1.15;
/// Tokens that add no more than this share to a step's time are free.
const FREE: f64 = 0.05;

impl CostModel {
    /// A model that has seen no step yet. `hardware` is one that passes [`Hardware::check`].
    pub fn new(shape: ModelShape, hardware: Hardware) -> Self {
        Self {
            shape,
            hardware,
            token_tile: 1,
            num_observed: [0; 4],
        }
    }

    /// The same for a device whose matrix products compute so many tokens at a time, and take as long
    /// for one of them as for all.
    pub fn with_token_tile(self, tokens: usize) -> Self {
        Self {
            token_tile: tokens.max(1),
            ..self
        }
    }

    /// The model.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The device, as far as it is known.
    pub fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// The cost of a step.
    pub fn cost(&self, load: &StepLoad) -> StepCost {
        let (matrices, attention) = (self.matrices(load), self.attention(load));
        let waits = |bound: Bound| -> f64 {
            let parts = [&matrices, &attention].into_iter();
            let bound_so = parts.filter(|part| {
                (part.memory_seconds >= part.compute_seconds) == (bound == Bound::Memory)
            });
            bound_so.map(Part::seconds).sum()
        };
        StepCost {
            bytes: matrices.bytes + attention.bytes,
            flops: matrices.flops + attention.flops,
            seconds: matrices.seconds() + attention.seconds() + self.overhead(),
            bound: match waits(Bound::Memory) >= waits(Bound::Compute) {
                true => Bound::Memory,
                false => Bound::Compute,
            },
        }
    }

    /// The cost of a step of these sequences.
    pub fn cost_of(&self, sequences: impl IntoIterator<Item = SequenceLoad>) -> StepCost {
        self.cost(&StepLoad::of(&self.shape, sequences))
    }

    /// Tokens at which a step's matrices turn from bound by memory to bound by arithmetic.
    pub fn ridge_tokens(&self) -> usize {
        let load = |num_tokens| StepLoad {
            num_tokens,
            ..StepLoad::default()
        };
        largest(1, 1 << 16, |n| {
            let part = self.matrices(&load(n));
            part.memory_seconds >= part.compute_seconds
        })
    }

    /// Most tokens of a prompt, after `num_computed_tokens` of it, that a step can take beside its
    /// load and end by `seconds`, up to `most`.
    pub fn tokens_within(
        &self,
        load: &StepLoad,
        num_computed_tokens: usize,
        seconds: f64,
        most: usize,
    ) -> usize {
        largest(0, most, |num_tokens| {
            let mut load = *load;
            if num_tokens > 0 {
                let chunk = SequenceLoad {
                    num_tokens,
                    num_computed_tokens,
                    samples: true,
                };
                load.add(&self.shape, chunk);
            }
            self.cost(&load).seconds <= seconds
        })
    }

    /// Prompt tokens that are free beside a load: they make the step hardly longer, because it
    /// waits for the weights anyway.
    pub fn free_tokens(&self, load: &StepLoad, num_computed_tokens: usize, most: usize) -> usize {
        let seconds = self.cost(load).seconds * (1.0 + FREE);
        self.tokens_within(load, num_computed_tokens, seconds, most)
    }

    /// Prompt tokens that cost hardly more than the first of them, which may be dear: the rest of the
    /// tile it begins.
    pub fn tokens_with_one(
        &self,
        load: &StepLoad,
        num_computed_tokens: usize,
        most: usize,
    ) -> usize {
        let mut one = *load;
        let chunk = SequenceLoad {
            num_tokens: 1,
            num_computed_tokens,
            samples: true,
        };
        one.add(&self.shape, chunk);
        let seconds = self.cost(&one).seconds * (1.0 + FREE);
        self.tokens_within(load, num_computed_tokens, seconds, most)
            .max(1)
    }

    /// Takes in what a step took, and moves the one number that explains the difference: the
    /// bandwidth where there are hardly any tokens, else the regime's rate, as far as the bytes do
    /// not account for the time.
    pub fn observe(&mut self, load: &StepLoad, measured_seconds: f64) {
        let without_overhead = measured_seconds - self.overhead();
        if load.num_tokens == 0 || !without_overhead.is_finite() || without_overhead <= 0.0 {
            return;
        }
        let matrices = self.matrices(load);
        if load.num_tokens <= BANDWIDTH_TOKENS {
            let bytes = matrices.bytes + self.attention(load).bytes;
            let seen = refine(&mut self.num_observed[3]);
            seen(&mut self.hardware.bandwidth, bytes / without_overhead);
            return;
        }
        let seconds = without_overhead - self.attention(load).seconds();
        let regime = Regime::of(load.num_tokens);
        let rate = self.hardware.flops.get_mut(regime);
        // What cannot be: attention alone was predicted to take longer.
        if seconds <= 0.0 {
            return;
        }
        let achieved = *rate * matrices.compute_seconds / seconds;
        if seconds > matrices.memory_seconds * BOUND_BY_BYTES || achieved > *rate {
            refine(&mut self.num_observed[regime as usize])(rate, achieved);
        }
    }

    fn overhead(&self) -> f64 {
        let dispatches = self.shape.num_dispatches as f64;
        self.hardware.step_overhead + dispatches * self.hardware.dispatch_overhead
    }

    /// Weights once, and activations in and out of every layer.
    fn matrices(&self, load: &StepLoad) -> Part {
        let (shape, hardware) = (&self.shape, &self.hardware);
        let tokens = load.num_tokens as f64;
        let mut params = shape.params_read(load.num_tokens);
        if load.num_logits_rows > 0 {
            params += shape.head_params as f64;
        }
        // Residual in and out around attention and feed-forward, two bytes a number.
        let activations = 8.0 * tokens * (shape.hidden_size * shape.num_layers()) as f64;
        let bytes = params * shape.bytes_per_param + activations;
        let layers = 2.0 * shape.params_per_token();
        let head = 2.0 * shape.head_params as f64;
        // Of whole tiles.
        let seconds = |flops: f64, n: usize| {
            let computed = n.next_multiple_of(self.token_tile) as f64;
            flops * computed / hardware.flops.get(Regime::of(n))
        };
        Part {
            bytes,
            flops: layers * tokens + head * load.num_logits_rows as f64,
            memory_seconds: bytes / hardware.bandwidth,
            compute_seconds: seconds(layers, load.num_tokens) + seconds(head, load.num_logits_rows),
        }
    }

    fn attention(&self, load: &StepLoad) -> Part {
        let flops = |regime| load.attention_flops.get(regime);
        let seconds = |&regime: &Regime| flops(regime) / self.hardware.flops.get(regime);
        Part {
            bytes: load.kv_bytes,
            flops: Regime::ALL.into_iter().map(flops).sum(),
            memory_seconds: load.kv_bytes / self.hardware.bandwidth,
            compute_seconds: Regime::ALL.iter().map(seconds).sum(),
        }
    }
}

/// Takes a measurement of a rate in: the first few by their mean, in which each may say anything,
/// later ones as far as they surprise little.
fn refine(num_observed: &mut u32) -> impl FnOnce(&mut f64, f64) {
    move |rate, measured| {
        let change = measured / *rate;
        *num_observed = num_observed.saturating_add(1);
        let (change, weight) = match *num_observed {
            n @ ..=NUM_TRUSTED => (change, 1.0 / f64::from(n)),
            _ => {
                let most = MOST_SURPRISE;
                (change.clamp(1.0 / most, most), MEMORY_OF_MEASUREMENTS)
            }
        };
        let refined = *rate * change.powf(weight);
        if refined.is_finite() && refined >= 1.0 {
            *rate = refined;
        }
    }
}

/// The largest `n` in `least..=most` that is fine, if all below it are; else `least`.
fn largest(least: usize, most: usize, fine: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (least, most.max(least));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fine(middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}

impl PreemptionCost for CostModel {
    fn recompute(&self, num_tokens: usize) -> f64 {
        let all = SequenceLoad {
            num_tokens,
            num_computed_tokens: 0,
            samples: false,
        };
        self.cost_of([all]).seconds
    }

    fn swap(&self, bytes: u64) -> f64 {
        2.0 * bytes as f64 / self.hardware.host_bandwidth
    }
}

#[cfg(test)]
#[path = "cost_model_tests.rs"]
mod tests;
