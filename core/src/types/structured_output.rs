//! What form an answer must have, why a form is refused, and which tokens it leaves for one draw:
//! plain data. What a grammar allows is `sample::grammar`'s to find out.

use super::TokenId;
use std::sync::Arc;
use thiserror::Error;

/// The form of an answer, enforced token by token. Names are those of vLLM's
/// `StructuredOutputsParams`, of which exactly one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StructuredOutput {
    /// JSON that a schema allows (the text of a JSON Schema, draft 2020-12 as far as `llguidance`
    /// knows it; an unknown keyword is refused). Properties come in the schema's order.
    Json(String),
    /// Any JSON object.
    JsonObject,
    /// A text that a regular expression matches as a whole (syntax of the `regex` crate;
    /// `\d`, `\w` and `\s` are those of ASCII; no look-around).
    Regex(String),
    /// A text of a context-free grammar in `llguidance`'s variant of Lark, whose rule is `start`.
    Grammar(String),
    /// One of these texts.
    Choice(Vec<String>),
}

impl StructuredOutput {
    /// Its parameter's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Json(_) => "json",
            Self::JsonObject => "json_object",
            Self::Regex(_) => "regex",
            Self::Grammar(_) => "grammar",
            Self::Choice(_) => "choice",
        }
    }

    /// Bytes of its texts.
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::Json(text) | Self::Regex(text) | Self::Grammar(text) => text.len(),
            Self::JsonObject => 0,
            Self::Choice(texts) => texts
                .iter()
                .map(|text| size_of::<String>() + text.len())
                .sum(),
        }
    }
}

/// Why an answer cannot have the form that is asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StructuredOutputError {
    /// It is no schema, expression or grammar, or one that cannot be enforced.
    #[error("structured_output.{name}: {message}")]
    Refused {
        /// The parameter, as [`StructuredOutput::name`] has it.
        name: &'static str,
        /// What is wrong, and where.
        message: String,
    },
    /// It is more than is enforced, so that nobody can hold up or fill an engine with one.
    #[error(
        "structured_output.{name}: {what} is {found}, but at most {limit} is taken: make it simpler"
    )]
    TooLarge {
        /// The parameter.
        name: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much there may be.
        limit: usize,
    },
    /// Going on would take more work or memory for one token than is spent on it.
    #[error(
        "structured_output.{name}: what may come next is too hard to find ({message}): make it simpler"
    )]
    TooComplex {
        /// The parameter.
        name: &'static str,
        /// Which limit.
        message: String,
    },
    /// No token is left to draw, and the answer is not whole.
    #[error(
        "structured_output.{name}: no token of this model goes on from here; besides the grammar, \
         bad_words, stop ids below min_tokens and ignore_eos leave tokens out"
    )]
    NothingAllowed {
        /// The parameter.
        name: &'static str,
    },
    /// There is no text to tokens, so none to constrain.
    #[error("structured_output needs a tokenizer, and this engine has none")]
    NoTokenizer,
    /// The vocabulary itself cannot be searched.
    #[error("structured_output cannot be had with this vocabulary: {0}")]
    Vocabulary(String),
}

/// Which ids may be drawn. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask(Arc<[u32]>);

impl TokenMask {
    /// From its words: bit `id % 32` of word `id / 32` lets an id through.
    pub fn new(words: Vec<u32>) -> Self {
        Self(words.into())
    }

    /// Words for so many ids.
    pub fn num_words(vocab_size: usize) -> usize {
        vocab_size.div_ceil(32)
    }

    /// Its words.
    pub fn words(&self) -> &[u32] {
        &self.0
    }

    /// Whether an id may be drawn.
    pub fn allows(&self, id: TokenId) -> bool {
        let word = self.0.get(id as usize / 32).copied().unwrap_or(0);
        word >> (id % 32) & 1 == 1
    }
}
