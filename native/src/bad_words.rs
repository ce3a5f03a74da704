//! Texts that an answer does not hold, as the sequences of tokens that spell them.

use twoclock_core::text::{TextError, Tokenizer};
use twoclock_core::types::TokenId;

/// The sequences; inside a text a word mostly begins with its space, so both forms are there.
///
/// # Errors
/// The tokenizer's.
pub fn bad_words(tokenizer: &Tokenizer, words: &[String]) -> Result<Vec<Vec<TokenId>>, TextError> {
    let mut sequences = Vec::new();
    for word in words {
        for text in [word.clone(), format!(" {word}")] {
            let ids = tokenizer.encode(&text, false, false)?;
            if !ids.is_empty() {
                sequences.push(ids);
            }
        }
    }
    Ok(sequences)
}
