//! Why a request is refused or fails, in the numbers that decided it. Knows nothing of files or
//! devices.

use crate::types::{RequestId, StructuredOutputError, TokenId};
use thiserror::Error;

/// Why one request cannot be served. Never the fault of another request, and never costs one.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum RequestError {
    /// There is nothing to continue.
    #[error("the prompt has no tokens: give at least one (a beginning-of-sequence id will do)")]
    EmptyPrompt,
    /// An id the model does not have.
    #[error("{what} holds token id {id}, but this model's vocabulary ends at {vocab_size}")]
    TokenOutOfRange {
        /// Where the id stands.
        what: &'static str,
        /// The id.
        id: TokenId,
        /// Size of the vocabulary; ids are below it.
        vocab_size: usize,
    },
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {num_prompt_tokens} tokens{}, but max_model_len is {max_model_len}: shorten the prompt or \
         raise max_model_len",
        if *room > 0 { " and one more must fit" } else { "" }
    )]
    PromptTooLong {
        /// Length of the prompt.
        num_prompt_tokens: usize,
        /// 1 for a request that generates, 0 for one that only scores its prompt.
        room: usize,
        /// Longest sequence the engine serves.
        max_model_len: usize,
    },
    /// Even alone the request would run out of key/value memory.
    #[error(
        "{num_tokens} tokens need {needed} key/value blocks of {block_size}, but the cache has only \
         {available}: shorten the prompt, lower max_tokens, or give the cache more memory"
    )]
    NeverFits {
        /// Most tokens the request may keep in the cache.
        num_tokens: usize,
        /// Blocks that a layer needs for them; with a window, to compute them one by one.
        needed: usize,
        /// Tokens a block.
        block_size: usize,
        /// Blocks such a layer has.
        available: usize,
    },
    /// A sampling parameter has no meaning.
    #[error("{name} is {value}, but must be {must}")]
    InvalidParameter {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        must: &'static str,
    },
    /// The answer cannot have the form that is asked for.
    #[error(transparent)]
    StructuredOutput(#[from] StructuredOutputError),
    /// The model drew an id outside its vocabulary, which comes of logits that are not numbers.
    #[error(
        "{request_id}: the model drew token id {id} at position {position}, outside its vocabulary \
         of {vocab_size}: the weights or the device produced logits that are not numbers"
    )]
    InvalidSample {
        /// The request.
        request_id: RequestId,
        /// What was drawn.
        id: TokenId,
        /// Where.
        position: usize,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// The request bans every token there is.
    #[error(
        "{request_id}: no token may be drawn at position {position}: what bad_words, and min_tokens \
         with the ids that end an answer, ban is the whole vocabulary; ban less"
    )]
    EverythingBanned {
        /// The request.
        request_id: RequestId,
        /// Where a token was due.
        position: usize,
    },
    /// More components of an embedding than there are.
    #[error(
        "dimensions is {dimensions}, but this model's hidden states have {hidden_size} components: \
         ask for 1 to {hidden_size}"
    )]
    InvalidDimensions {
        /// What was asked for.
        dimensions: usize,
        /// What there are.
        hidden_size: usize,
    },
    /// Hidden states are not numbers.
    #[error(
        "{request_id}: the weights or the device produced hidden states that are not numbers, so \
         there is no embedding"
    )]
    InvalidHiddenState {
        /// The request.
        request_id: RequestId,
    },
    /// The runner computed this request but gave no token where one was due.
    #[error("{request_id}: the model runner gave no output for position {position}")]
    MissingOutput {
        /// The request.
        request_id: RequestId,
        /// Where the token was due.
        position: usize,
    },
}
