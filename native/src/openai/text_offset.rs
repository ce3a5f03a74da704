//! Where in its text each token stands: the character, by number, that it begins or goes on with. Knows tokens only by
//! their bytes.

use twoclock_core::text::{Detokenizer, Tokenizer};
use twoclock_core::types::TokenId;

/// Where the next token of an answer stands.
#[derive(Clone, Debug)]
pub(super) struct TextOffset {
    /// Characters before it, but for one that is begun.
    chars: usize,
    detokenizer: Detokenizer,
}

impl TextOffset {
    /// The answer follows this text.
    pub(super) fn behind(text: &str) -> Self {
        Self {
            chars: text.chars().count(),
            detokenizer: Detokenizer::continuing(true),
        }
    }

    /// Where this token stands, which is the next one.
    pub(super) fn pass(&mut self, id: TokenId, tokenizer: &Tokenizer) -> usize {
        let cut = self.detokenizer.is_cut_by(tokenizer, id);
        let place = self.chars + usize::from(cut);
        self.chars += self.detokenizer.push(tokenizer, id).chars().count();
        place
    }
}

/// Where the tokens of a prompt stand in the text that it is said again as. Special ones are a part of that only where
/// the prompt has them in words.
pub(super) fn of_prompt(text: &str, ids: &[TokenId], tokenizer: &Tokenizer) -> Vec<usize> {
    let mut next = TextOffset {
        chars: 0,
        detokenizer: Detokenizer::new(true),
    };
    let mut rest = text;
    let places = ids.iter().map(|&id| {
        if tokenizer.is_special(id)
            && let Ok(word) = std::str::from_utf8(tokenizer.token_bytes(id))
            && let Some(behind) = rest.strip_prefix(word)
        {
            let place = next.chars;
            next.chars += word.chars().count();
            rest = behind;
            return place;
        }
        let before = next.chars;
        let place = next.pass(id, tokenizer);
        let mut chars = rest.chars();
        for _ in before..next.chars {
            chars.next();
        }
        rest = chars.as_str();
        place
    });
    places.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let json = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
        Tokenizer::from_json(json, None, None).unwrap()
    }

    /// The token of each byte.
    fn of_bytes(bytes: &[u8], tokenizer: &Tokenizer) -> Vec<TokenId> {
        let ids = 0..tokenizer.vocab_size() as TokenId;
        let of = |byte: &u8| ids.clone().find(|&id| tokenizer.token_bytes(id) == [*byte]);
        bytes.iter().map(|byte| of(byte).unwrap()).collect()
    }

    #[test]
    fn a_token_stands_at_the_character_that_it_begins_or_goes_on_with() {
        let tokenizer = tokenizer();
        let [special] = tokenizer.encode("<|im_start|>", false, true).unwrap()[..] else {
            panic!("it is one token");
        };
        for bytes in [
            "a é 🐕!".as_bytes(),
            b"\xf0\x9fa\xf0\x9f\x90",
            b"\x9f\x9f\xf0\xf0\x9f\xe0\x80b",
            b"\xe2\x82\xf0\x9f\x90\x95\xc3",
        ] {
            let ids = of_bytes(bytes, &tokenizer);
            // Seen from the whole text: the last character of what ends with the first byte.
            let seen = |end| String::from_utf8_lossy(&bytes[..end]).chars().count() - 1;
            let expected: Vec<usize> = (1..=bytes.len()).map(seen).collect();
            let mut next = TextOffset::behind("né");
            for (&id, place) in ids.iter().zip(&expected) {
                // It is left out of the text, wherever it stands.
                next.pass(special, &tokenizer);
                assert_eq!(next.pass(id, &tokenizer), 2 + place, "{bytes:?}");
            }
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(of_prompt(&text, &ids, &tokenizer), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_special_token_of_a_prompt_stands_where_the_text_has_it() {
        let tokenizer = tokenizer();
        let text = "é<|im_start|>a<|im_end|>";
        let ids = tokenizer.encode(text, false, true).unwrap();
        assert_eq!(of_prompt(text, &ids, &tokenizer), [0, 0, 1, 13, 14]);
        let said = tokenizer.decode(&ids, true).unwrap();
        assert_eq!(said, "éa");
        assert_eq!(of_prompt(&said, &ids, &tokenizer), [0, 0, 1, 1, 2]);
    }
}
