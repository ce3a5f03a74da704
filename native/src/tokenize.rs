//! The `tokenize` and `detokenize` commands. Owns how ids are written and read; knows no model beyond
//! what its files say about text.

use serde_json::{Value, json};
use thiserror::Error;
use twoclock_core::config::TextAssets;
use twoclock_core::text::{TextError, Tokenizer};
use twoclock_core::types::TokenId;

use crate::output;

/// Why a list of ids is none.
#[derive(Debug, Error)]
pub enum IdsError {
    /// Something between the separators is no id.
    #[error(
        "{found:?}, number {place} on standard input, is no token id: ids are whole numbers from 0 on, with white space or commas between"
    )]
    NotAnId {
        /// What stands there.
        found: String,
        /// Which one it is, from 1.
        place: usize,
    },
    /// The tokenizer cannot be built, or has no such id.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// The tokens of a text.
pub struct Tokens {
    ids: Vec<TokenId>,
    texts: Vec<String>,
}

impl Tokens {
    /// Ids with spaces between.
    pub fn as_text(&self) -> String {
        let ids: Vec<_> = self.ids.iter().map(ToString::to_string).collect();
        ids.join(" ")
    }

    /// Ids, and what each stands for; bytes that are no character by themselves are U+FFFD.
    pub fn as_json(&self) -> Value {
        json!({"ids": self.ids, "tokens": self.texts})
    }
}

/// The tokens of a text. `add_special` puts those around it that the model expects there;
/// `parse_special` reads the texts of special tokens as such.
///
/// # Errors
/// The files hold no tokenizer, or one that is not supported.
pub fn tokenize(
    assets: &TextAssets,
    text: &str,
    add_special: bool,
    parse_special: bool,
) -> Result<Tokens, TextError> {
    let tokenizer = Tokenizer::from_assets(assets)?;
    let ids = tokenizer.encode(text, add_special, parse_special)?;
    let texts = ids
        .iter()
        .map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned())
        .collect();
    Ok(Tokens { ids, texts })
}

/// The text of a list of ids, special tokens as they are written.
///
/// # Errors
/// As [`tokenize`]; something that is no id, or one outside the vocabulary.
pub fn detokenize(assets: &TextAssets, ids: &str) -> Result<String, IdsError> {
    let ids = parse(ids)?;
    Ok(Tokenizer::from_assets(assets)?.decode(&ids, false)?)
}

fn parse(text: &str) -> Result<Vec<TokenId>, IdsError> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|part| !part.is_empty())
        .zip(1..)
        .map(|(part, place)| {
            let digits = part.bytes().all(|b| b.is_ascii_digit());
            part.parse()
                .ok()
                .filter(|_| digits)
                .ok_or_else(|| IdsError::NotAnId {
                    found: output::beginning(part),
                    place,
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_whole_numbers() {
        assert_eq!(parse(" 1 2,3,\n4\t").unwrap(), [1, 2, 3, 4]);
        assert_eq!(parse("").unwrap(), [] as [TokenId; 0]);
        for (wrong, place) in [
            ("1 -2", "number 2"),
            ("+1", "number 1"),
            ("1 4294967296", "number 2"),
            ("x", "\"x\""),
        ] {
            let said = parse(wrong).unwrap_err().to_string();
            assert!(said.contains(place), "{said}");
        }
    }
}
