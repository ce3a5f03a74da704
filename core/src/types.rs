//! Plain data every layer may name: ids, sampling parameters, reasons of finishing.
//!
//! Knows nothing of scheduling, text or devices.

mod pooling;
mod sampling;
mod structured_output;

pub use pooling::{PoolingParams, PoolingType};
pub use sampling::{SamplingHistory, SamplingInputs, SamplingParams};
pub use structured_output::{StructuredOutput, StructuredOutputError, TokenMask};

use std::fmt;

/// An index into a model's vocabulary.
pub type TokenId = u32;

/// Names one request for as long as the engine lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-generation or stop id was drawn, or a stop string completed.
    Stop,
    /// `max_tokens` or the model's context was reached.
    Length,
    /// The caller gave it up.
    Abort,
}

impl FinishReason {
    /// The name the OpenAI protocol uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
        }
    }
}

/// What of the things a request asked to end at ended its answer. An end of generation is none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// One of `stop_token_ids`.
    TokenId(TokenId),
    /// One of `stop`.
    Text(String),
}

/// Log-probabilities (natural logarithm) of one position.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token that stands there.
    pub logprob: f32,
    /// Its place among all, from 1, in the order of [`top`](Self::top).
    pub rank: u32,
    /// The best ids with theirs, best first, lowest id first on a tie.
    pub top: Vec<(TokenId, f32)>,
}
