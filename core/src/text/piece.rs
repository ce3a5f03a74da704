//! The bytes of every token. Owns how a vocabulary writes bytes (the byte-level alphabet, `<0xNN>`,
//! `▁`); knows no text longer than a token.

use super::TextError;
use crate::types::TokenId;

/// Most ids a vocabulary may have, far above any in use: the table is indexed by id.
const MAX_VOCAB: u64 = 1 << 22;

/// How a vocabulary writes the bytes of its ordinary tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's alphabet: one character a byte.
    ByteLevel,
    /// SentencePiece: UTF-8 with `▁` for a space, and `<0xNN>` for single bytes.
    SentencePiece,
}

/// Text and standing of every token, by id; ids without a token have no bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Start and end in `bytes`.
    ranges: Vec<(u32, u32)>,
    special: Vec<bool>,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Sets the bytes of one id.
    pub(super) fn set(
        &mut self,
        id: TokenId,
        bytes: &[u8],
        special: bool,
    ) -> Result<(), TextError> {
        let index = id as usize;
        let start = self.bytes.len();
        let end = start + bytes.len();
        let (true, Ok(start), Ok(end)) = (
            u64::from(id) < MAX_VOCAB,
            u32::try_from(start),
            u32::try_from(end),
        ) else {
            return Err(TextError::Malformed {
                field: "vocabulary",
                found: format!("of an id {id} after {start} bytes of tokens"),
                expected: format!("ids must be below {MAX_VOCAB} and tokens below 4 GiB together"),
            });
        };
        if index >= self.ranges.len() {
            self.ranges.resize(index + 1, (0, 0));
            self.special.resize(index + 1, false);
        }
        self.bytes.extend_from_slice(bytes);
        // In range: the tables were just lengthened to hold it.
        self.ranges[index] = (start, end);
        self.special[index] = special;
        Ok(())
    }

    pub(super) fn bytes(&self, id: TokenId) -> &[u8] {
        self.ranges
            .get(id as usize)
            .and_then(|&(start, end)| self.bytes.get(start as usize..end as usize))
            .unwrap_or_default()
    }

    pub(super) fn is_special(&self, id: TokenId) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }
}

/// The bytes an ordinary token stands for.
pub(super) fn spell(token: &str, spelling: Spelling) -> Vec<u8> {
    match spelling {
        // A token with a character outside the alphabet stands for itself.
        Spelling::ByteLevel => token
            .chars()
            .map(byte_of)
            .collect::<Option<_>>()
            .unwrap_or_else(|| token.as_bytes().to_vec()),
        Spelling::SentencePiece => match byte_token(token) {
            Some(byte) => vec![byte],
            None => token.replace('▁', " ").into_bytes(),
        },
    }
}

/// The byte of `<0xNN>`.
pub(super) fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}

/// The byte a character of the byte-level alphabet stands for: printable Latin-1 characters are
/// themselves, the other 68 bytes follow from U+0100 in order.
fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    Some(match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code as u8,
        0x100..=0x120 => (code - 0x100) as u8,
        0x121..=0x142 => (code - 0x121 + 0x7f) as u8,
        0x143 => 0xad,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_alphabet_has_every_byte_once() {
        let bytes: Vec<u8> = ('\0'..='\u{200}').filter_map(byte_of).collect();
        assert_eq!(bytes.len(), 256);
        assert_eq!(bytes.iter().collect::<BTreeSet<_>>().len(), 256);
        assert_eq!(spell("Ġthe", Spelling::ByteLevel), b" the");
        assert_eq!(spell("Ċ", Spelling::ByteLevel), b"\n");
        assert_eq!(spell("日", Spelling::ByteLevel), "日".as_bytes());
    }

    #[test]
    fn sentencepiece_writes_spaces_and_bytes() {
        assert_eq!(spell("▁the", Spelling::SentencePiece), b" the");
        assert_eq!(spell("<0xE6>", Spelling::SentencePiece), [0xe6]);
        assert_eq!(spell("<0x+6>", Spelling::SentencePiece), b"<0x+6>");
    }

    #[test]
    fn an_id_beyond_all_reason_is_refused() {
        assert!(Pieces::default().set(u32::MAX, b"x", false).is_err());
    }
}
