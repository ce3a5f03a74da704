//! Tokens to text as they come. Owns the bytes of an unfinished character; knows no vocabulary but
//! by the tokenizer it is handed.

use super::Tokenizer;
use crate::types::TokenId;

/// Turns tokens into text one at a time without ever splitting a character: bytes that may still
/// become one are held back, bytes that cannot are U+FFFD. All that it gives out, joined, is what
/// [`Tokenizer::decode`] gives for all tokens at once.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    /// The beginning of a character: at most three bytes between calls.
    held: Vec<u8>,
    skip_special: bool,
    /// No text has come yet, so a leading space may have to go.
    at_start: bool,
}

impl Detokenizer {
    /// For a text of its own.
    pub fn new(skip_special: bool) -> Self {
        Self {
            held: Vec::new(),
            skip_special,
            at_start: true,
        }
    }

    /// For a text that goes on from another, so that a space at its beginning is meant.
    pub fn continuing(skip_special: bool) -> Self {
        Self {
            at_start: false,
            ..Self::new(skip_special)
        }
    }

    /// The text that is certain after one more token; may be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: TokenId) -> String {
        if self.skip_special && tokenizer.is_special(id) {
            return String::new();
        }
        let mut bytes = tokenizer.token_bytes(id);
        if self.at_start && !bytes.is_empty() {
            self.at_start = false;
            if tokenizer.strips_leading_space() && !tokenizer.is_special(id) {
                bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            }
        }
        self.push_bytes(bytes)
    }

    /// Whether this token leaves a character unfinished that those before it began: it is not what could go on with it.
    pub fn is_cut_by(&self, tokenizer: &Tokenizer, id: TokenId) -> bool {
        if self.held.is_empty() || (self.skip_special && tokenizer.is_special(id)) {
            return false;
        }
        let next = tokenizer.token_bytes(id).iter().take(1);
        let bytes: Vec<u8> = self.held.iter().chain(next).copied().collect();
        std::str::from_utf8(&bytes).is_err_and(|e| e.error_len().is_some())
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    match e.error_len() {
                        // It may still become a character.
                        None => break,
                        Some(wrong) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = rest.get(wrong..).unwrap_or_default();
                        }
                    }
                }
            }
        }
        self.held = rest.to_vec();
        text
    }

    /// What is left when no more tokens come: U+FFFD for an unfinished character, or nothing.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&held).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_chunking_gives_the_whole(
            parts in prop::collection::vec(
                prop_oneof![any::<String>().prop_map(String::into_bytes), any::<Vec<u8>>()], 0..8),
            cuts in prop::collection::vec(1_usize..5, 1..40),
        ) {
            let bytes = parts.concat();
            let mut detokenizer = Detokenizer::continuing(false);
            let mut text = String::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                text.push_str(&detokenizer.push_bytes(chunk));
                prop_assert!(detokenizer.held.len() <= 3);
                rest = after;
            }
            text.push_str(&detokenizer.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
