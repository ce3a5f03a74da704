//! Plain data every layer may name: ids, sampling parameters, reasons of finishing.
//!
//! Knows nothing of scheduling, text or devices.

use std::fmt;

/// An index into a model's vocabulary.
pub type TokenId = u32;

/// Names one request for as long as the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// How one request draws its tokens and when it ends.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits before drawing; 0 takes the largest logit (lowest id on a tie).
    pub temperature: f32,
    /// Seeds the noise, which is a hash of (seed, position, token): the same seed gives the same
    /// tokens in any batch.
    pub seed: u64,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Token ids that end the request; the id itself is not part of the answer.
    pub stop_token_ids: Vec<TokenId>,
    /// Go on past end-of-generation ids (they then are part of the answer).
    pub ignore_eos: bool,
    /// Report the log-probabilities of the chosen token and of this many best ones, a step.
    pub logprobs: Option<usize>,
    /// Report the log-probability of every prompt token after the first, given those before it.
    pub prompt_logprobs: bool,
    /// Answers to draw; each has a seed of its own, derived from `seed`, and the first has `seed`
    /// itself. The prompt is computed once.
    pub n: usize,
    /// Requests share cached beginnings only with those of the same salt, so that nobody learns
    /// from the time an answer takes what others have asked.
    pub cache_salt: Option<String>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            seed: 0,
            max_tokens: 128,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            prompt_logprobs: false,
            n: 1,
            cache_salt: None,
        }
    }
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-generation or stop id was drawn.
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

/// Log-probabilities (natural logarithm) of one position.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token that stands there.
    pub logprob: f32,
    /// The best ids with theirs, best first, lowest id first on a tie.
    pub top: Vec<(TokenId, f32)>,
}
