//! From tokens to text, request by request, up to the first stop string. Knows no model and no step.

use super::core::EngineOutput;
use crate::text::{Detokenizer, StopStrings, Tokenizer};
use crate::types::{RequestId, SamplingParams, StopReason};
use std::collections::BTreeMap;

/// What a step brought one request, with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOutput {
    /// The tokens. A stop string ends the request too.
    pub output: EngineOutput,
    /// The text that became certain: the texts of a request, joined, are its answer. A character
    /// that is not whole yet is held back, and what may become a stop string; special tokens have no
    /// text, unless [`skip_special_tokens`](SamplingParams::skip_special_tokens) is off.
    pub text: String,
}

/// One answer's text as its tokens come.
#[derive(Debug)]
pub(super) struct TextStream {
    detokenizer: Detokenizer,
    stops: StopStrings,
    /// Tokens before stop strings are looked for.
    min_tokens: usize,
    num_tokens: usize,
}

impl TextStream {
    /// An answer not yet begun.
    pub(super) fn new(params: &SamplingParams) -> Self {
        Self {
            // An answer goes on from its prompt, so a space at its beginning is meant.
            detokenizer: Detokenizer::continuing(params.skip_special_tokens),
            stops: StopStrings::new(&params.stop, params.include_stop_str_in_output),
            min_tokens: params.min_tokens,
            num_tokens: 0,
        }
    }

    /// The text that becomes certain with this, and the stop string that ends it.
    pub(super) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        output: &EngineOutput,
    ) -> (String, Option<StopReason>) {
        let mut text = String::new();
        for &id in &output.token_ids {
            self.num_tokens += 1;
            let piece = self.detokenizer.push(tokenizer, id);
            if self.num_tokens <= self.min_tokens {
                text.push_str(&piece);
                continue;
            }
            let next = self.stops.push(&piece);
            text.push_str(&next.text);
            if let Some(stop) = next.at.and_then(|which| self.stops.string(which)) {
                return (text, Some(StopReason::Text(stop.to_owned())));
            }
        }
        if output.finished.is_some() {
            // Half a character at the end completes no stop string.
            text.push_str(&self.stops.finish());
            text.push_str(&self.detokenizer.finish());
        }
        (text, None)
    }
}

/// The unfinished text of every request.
#[derive(Debug, Default)]
pub struct OutputProcessor {
    /// By request and answer.
    streams: BTreeMap<(RequestId, usize), TextStream>,
}

impl OutputProcessor {
    /// A processor that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects the text of an answer; one never heard of has no stop strings.
    pub(super) fn expect(&mut self, id: RequestId, index: usize, stream: TextStream) {
        self.streams.insert((id, index), stream);
    }

    /// The answers of a request are of no more use.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.streams.retain(|(of, _), _| *of != id);
    }

    /// Adds its text to what a step brought. Where a stop string ends the answer, the output says
    /// [`FinishReason::Stop`](crate::types::FinishReason::Stop), whatever it said before: the engine must then give the answer up.
    pub fn process(&mut self, tokenizer: &Tokenizer, mut output: EngineOutput) -> RequestOutput {
        let answer = (output.request_id, output.index);
        let new = || TextStream::new(&SamplingParams::default());
        let stream = self.streams.entry(answer).or_insert_with(new);
        let (text, stopped) = stream.push(tokenizer, &output);
        if let Some(reason) = stopped {
            output.stop_at(reason);
        }
        if output.finished.is_some() {
            self.streams.remove(&answer);
        }
        RequestOutput { output, text }
    }
}
