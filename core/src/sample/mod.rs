//! What a request asks of its logits, on the host: which of them are edited before the draw, and
//! log-probabilities; which tokens an answer's form allows. The draw itself happens on the device
//! (`shaders::kernels::sample`); [`distribution`] says in plain code what it draws from. Pure.

pub mod distribution;
pub mod edits;
pub mod grammar;
pub mod logprobs;

pub use edits::{LogitEdit, logit_edits};
pub use logprobs::{LogSoftmax, token_logprobs};
