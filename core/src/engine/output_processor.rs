//! From tokens to text, request by request. Knows no model and no step.

use super::core::EngineOutput;
use crate::text::{Detokenizer, Tokenizer};
use crate::types::RequestId;
use std::collections::BTreeMap;

/// What a step brought one request, with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOutput {
    /// The tokens.
    pub output: EngineOutput,
    /// The text that became certain: the texts of a request, joined, are its answer. A character
    /// that is not whole yet is held back, and special tokens have no text.
    pub text: String,
}

/// The unfinished text of every request.
#[derive(Debug, Default)]
pub struct OutputProcessor {
    /// By request and answer.
    streams: BTreeMap<(RequestId, usize), Detokenizer>,
}

impl OutputProcessor {
    /// A processor that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds its text to what a step brought.
    pub fn process(&mut self, tokenizer: &Tokenizer, output: EngineOutput) -> RequestOutput {
        // An answer goes on from its prompt, so a space at its beginning is meant.
        let new = || Detokenizer::continuing(true);
        let stream = self
            .streams
            .entry((output.request_id, output.index))
            .or_insert_with(new);
        let ids = output.token_ids.iter();
        let mut text: String = ids.map(|&id| stream.push(tokenizer, id)).collect();
        if output.finished.is_some() {
            text.push_str(&stream.finish());
            self.streams.remove(&(output.request_id, output.index));
        }
        RequestOutput { output, text }
    }
}
