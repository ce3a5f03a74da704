//! Between text and token ids. Owns which tokens text may spell and what bytes an id stands for;
//! knows no model.

use std::ops::Range;
use std::sync::OnceLock;

use super::literal::SpecialTexts;
use super::piece::Pieces;
use super::{TextError, tokenizer_json, vocabulary};
use crate::config::{TextAssets, TokenizerAsset, Vocabulary};
use crate::types::TokenId;

/// What `add_special` adds.
pub(super) enum Specials {
    /// Whatever the library's post-processor does.
    PostProcessor,
    /// These ids.
    Ids {
        before: Option<TokenId>,
        after: Option<TokenId>,
    },
}

/// What a tokenizer is made of.
pub(super) struct Parts {
    pub(super) inner: tokenizers::Tokenizer,
    pub(super) pieces: Pieces,
    pub(super) strip_leading_space: bool,
    pub(super) specials: Specials,
    pub(super) bos: Option<TokenId>,
    pub(super) eos: Option<TokenId>,
    pub(super) eog: Vec<TokenId>,
}

/// Turns text into ids and back.
///
/// Decoding is the concatenation of every token's bytes, read as UTF-8 with U+FFFD for what is
/// none; so it can be done token by token ([`Detokenizer`](super::Detokenizer)).
pub struct Tokenizer {
    parts: Parts,
    /// A copy that reads special tokens as text. The library keeps this choice in the object, and
    /// most programs need only one of the two.
    plain: OnceLock<tokenizers::Tokenizer>,
    /// Only needed where messages are told from their template.
    special_texts: OnceLock<SpecialTexts>,
}

impl Tokenizer {
    /// The tokenizer of a model's files.
    ///
    /// # Errors
    /// [`TextError::NoTokenizer`] where there is none; otherwise as the two other constructors.
    pub fn from_assets(assets: &TextAssets) -> Result<Self, TextError> {
        match &assets.tokenizer {
            None => Err(TextError::NoTokenizer),
            Some(TokenizerAsset::Vocabulary(vocabulary)) => Self::from_vocabulary(vocabulary),
            Some(TokenizerAsset::Json(json)) => Self::from_json(
                json,
                assets.bos_token.as_deref(),
                assets.eos_token.as_deref(),
            ),
        }
    }

    /// From the bytes of a `tokenizer.json`, and the texts of the tokens that begin and end a
    /// sequence, where known.
    ///
    /// # Errors
    /// [`TextError`] where the file is broken or no byte-level or byte-fallback BPE.
    pub fn from_json(json: &[u8], bos: Option<&str>, eos: Option<&str>) -> Result<Self, TextError> {
        tokenizer_json::build(json, bos, eos).map(Self::new)
    }

    /// From the vocabulary of a GGUF file.
    ///
    /// # Errors
    /// [`TextError`] for another model than `gpt2` and `llama`, an unknown rule of splitting, or
    /// lists that do not fit each other.
    pub fn from_vocabulary(vocabulary: &Vocabulary) -> Result<Self, TextError> {
        vocabulary::build(vocabulary).map(Self::new)
    }

    fn new(parts: Parts) -> Self {
        Self {
            parts,
            plain: OnceLock::new(),
            special_texts: OnceLock::new(),
        }
    }

    /// The ids of a text.
    ///
    /// `add_special` puts the tokens around it that the model expects around a text (such as the
    /// beginning of sequence); `parse_special` reads the texts of special tokens as those tokens.
    /// Without it they are letters like any other: what a person wrote must never end a turn.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] where the library refuses the text.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>, TextError> {
        let inner = if parse_special {
            &self.parts.inner
        } else {
            self.plain.get_or_init(|| {
                let mut plain = self.parts.inner.clone();
                plain.set_encode_special_tokens(true);
                plain
            })
        };
        let post_process = add_special && matches!(self.parts.specials, Specials::PostProcessor);
        let encoding = inner
            .encode_fast(text, post_process)
            .map_err(|e| TextError::Tokenizer(e.to_string()))?;
        let (before, after) = match self.parts.specials {
            Specials::Ids { before, after } if add_special => (before, after),
            _ => (None, None),
        };
        let ids = encoding.get_ids().iter().copied();
        Ok(before.into_iter().chain(ids).chain(after).collect())
    }

    /// The ids of a text out of a chat template: nothing is added, and special tokens are read as
    /// such except in the byte ranges `literal`, ascending. Without ranges it is
    /// `encode(text, false, true)`; with some, only the parts between special tokens that hold
    /// them are read otherwise.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_with_literals(
        &self,
        text: &str,
        literal: &[Range<usize>],
    ) -> Result<Vec<TokenId>, TextError> {
        if literal.is_empty() {
            return self.encode(text, false, true);
        }
        let mut ids = Vec::new();
        let mut last = 0;
        let parts = self.special_texts()?.parts_with(text, literal);
        for part in parts {
            if last < part.start {
                ids.extend(self.encode(&text[last..part.start], false, true)?);
            }
            ids.extend(self.encode(&text[part.clone()], false, false)?);
            last = part.end;
        }
        if last < text.len() {
            ids.extend(self.encode(&text[last..], false, true)?);
        }
        Ok(ids)
    }

    /// The texts of the special tokens, as they are written.
    pub(super) fn special_texts(&self) -> Result<&SpecialTexts, TextError> {
        match self.special_texts.get() {
            Some(texts) => Ok(texts),
            None => {
                let texts = SpecialTexts::new(&self.parts.inner)?;
                Ok(self.special_texts.get_or_init(|| texts))
            }
        }
    }

    /// The text of ids. `skip_special` leaves out special tokens.
    ///
    /// # Errors
    /// [`TextError::UnknownId`].
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> Result<String, TextError> {
        let size = self.vocab_size();
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= size) {
            return Err(TextError::UnknownId { id, size });
        }
        let mut detokenizer = super::Detokenizer::new(skip_special);
        let mut text: String = ids.iter().map(|&id| detokenizer.push(self, id)).collect();
        text.push_str(&detokenizer.finish());
        Ok(text)
    }

    /// The bytes one token stands for; none for an id without a token, as models pad their
    /// vocabulary. Not always UTF-8: a character may be spread over several tokens.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.parts.pieces.bytes(id)
    }

    /// Whether a token is structure rather than text.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.parts.pieces.is_special(id)
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> usize {
        self.parts.pieces.len()
    }

    /// The token that begins a sequence.
    pub fn bos(&self) -> Option<TokenId> {
        self.parts.bos
    }

    /// The token that ends a sequence.
    pub fn eos(&self) -> Option<TokenId> {
        self.parts.eos
    }

    /// Every token known to end a generation, ascending.
    pub fn eog(&self) -> &[TokenId] {
        &self.parts.eog
    }

    /// The id of a token by its text in the vocabulary.
    pub fn id(&self, token: &str) -> Option<TokenId> {
        self.parts.inner.token_to_id(token)
    }

    /// Whether decoding drops the space a text begins with: encoding has put one there.
    pub(super) fn strips_leading_space(&self) -> bool {
        self.parts.strip_leading_space
    }
}
