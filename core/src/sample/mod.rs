//! What follows from a row of logits on the host: log-probabilities. The draw itself happens on
//! the device (`shaders::kernels::sample`). Pure.

pub mod logprobs;

pub use logprobs::{LogSoftmax, token_logprobs};
