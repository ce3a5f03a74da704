//! From a GGUF vocabulary to a tokenizer object. Owns how merges are derived for SentencePiece;
//! knows no file.

use std::collections::{HashMap, HashSet};

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{AddedToken, NormalizerWrapper};

use super::piece::{Pieces, Spelling, byte_token, spell};
use super::tokenizer::{Parts, Specials};
use super::{TextError, pre_tokenizer};
use crate::config::{TokenKind, Vocabulary};
use crate::types::TokenId;

/// Longest piece of text taken, bytes: deriving merges costs the square of it. The longest in
/// published SentencePiece vocabularies have some tens.
const MAX_PIECE: usize = 512;

fn failed(e: impl ToString) -> TextError {
    TextError::Tokenizer(e.to_string())
}

/// Builds the parts of a tokenizer.
pub(super) fn build(vocabulary: &Vocabulary) -> Result<Parts, TextError> {
    if vocabulary.kinds.len() != vocabulary.tokens.len() {
        return Err(TextError::Malformed {
            field: "list of token types",
            found: format!("{} long", vocabulary.kinds.len()),
            expected: format!("there are {} tokens", vocabulary.tokens.len()),
        });
    }
    match vocabulary.model.as_str() {
        "gpt2" => merged(vocabulary, vocabulary.pre.as_deref().unwrap_or("default")),
        // Its rule of splitting goes without saying.
        "gemma4" => merged(vocabulary, "gemma4"),
        "llama" => sentence_piece(vocabulary),
        other => Err(TextError::Unsupported {
            field: "model (tokenizer.ggml.model)",
            found: format!("{other:?}"),
            supported: "gpt2 (byte-level BPE), gemma4 (BPE), llama (SentencePiece BPE)".to_owned(),
        }),
    }
}

/// BPE by a list of merges, in the parts that a named rule splits text into.
fn merged(vocabulary: &Vocabulary, pre: &str) -> Result<Parts, TextError> {
    let rule = pre_tokenizer::find(pre)?;
    let ids = ids(vocabulary);
    let mut seen = HashSet::new();
    let mut merges = Merges::new();
    for (rank, merge) in vocabulary.merges.iter().enumerate() {
        // The first piece may itself begin with the space that separates the two.
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let pair = merge
            .get(first..)
            .and_then(|rest| rest.find(' '))
            .map(|at| (&merge[..first + at], &merge[first + at + 1..]));
        let known = pair.filter(|(a, b)| {
            [*a, *b, &format!("{a}{b}")]
                .iter()
                .all(|piece| ids.contains_key(*piece))
        });
        let Some((a, b)) = known else {
            return Err(TextError::Malformed {
                field: "list of merges",
                found: format!("{merge:?} at rank {rank}"),
                expected: "a merge is two tokens with a space between that join to a third"
                    .to_owned(),
            });
        };
        // The first of two equal merges counts.
        if seen.insert((a, b)) {
            merges.push((a.to_owned(), b.to_owned()));
        }
    }
    let model = BPE::builder()
        .vocab_and_merges(owned(&ids), merges)
        .ignore_merges(rule.ignore_merges)
        .byte_fallback(rule.plain)
        .build()
        .map_err(failed)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    inner.with_pre_tokenizer(Some(rule.build()?));
    let spelling = if rule.plain {
        let spaces = Replace::new(" ", "▁").map_err(failed)?;
        inner.with_normalizer(Some(spaces)).map_err(failed)?;
        Spelling::SentencePiece
    } else {
        Spelling::ByteLevel
    };
    finish(vocabulary, inner, spelling, false, rule.add_bos)
}

/// SentencePiece's BPE: text as one part, spaces written `▁`; two neighbours join when their join
/// is a piece, best score first. So every split of a piece into two pieces is a merge, ranked by
/// the score of the piece.
fn sentence_piece(vocabulary: &Vocabulary) -> Result<Parts, TextError> {
    let ids = ids(vocabulary);
    if vocabulary.scores.len() != vocabulary.tokens.len() {
        return Err(TextError::Malformed {
            field: "list of scores",
            found: format!("{} long", vocabulary.scores.len()),
            expected: format!("there are {} tokens", vocabulary.tokens.len()),
        });
    }
    // Structure and bytes are never spelt by text, so no merge may lead to them.
    let is_text = |id: TokenId| {
        matches!(
            vocabulary.kinds.get(id as usize),
            Some(TokenKind::Normal | TokenKind::UserDefined)
        )
    };
    let mut ranked: Vec<(f32, TokenId, &str, &str)> = Vec::new();
    for (&piece, &id) in ids.iter().filter(|(_, id)| is_text(**id)) {
        if piece.len() > MAX_PIECE {
            return Err(TextError::Malformed {
                field: "vocabulary",
                found: format!("of a token of {} bytes with id {id}", piece.len()),
                expected: format!("pieces of SentencePiece have at most {MAX_PIECE}"),
            });
        }
        let score = vocabulary.scores.get(id as usize).copied().unwrap_or(0.0);
        for (at, _) in piece.char_indices().skip(1) {
            let (a, b) = piece.split_at(at);
            if [a, b]
                .iter()
                .all(|half| ids.get(half).is_some_and(|&id| is_text(id)))
            {
                ranked.push((score, id, a, b));
            }
        }
    }
    ranked.sort_by(|x, y| {
        y.0.total_cmp(&x.0)
            .then(x.1.cmp(&y.1))
            .then(x.2.len().cmp(&y.2.len()))
    });
    let merges = ranked
        .into_iter()
        .map(|(_, _, a, b)| (a.to_owned(), b.to_owned()))
        .collect();

    let mut model = BPE::builder()
        .vocab_and_merges(owned(&ids), merges)
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(unk) = vocabulary
        .unk
        .and_then(|id| vocabulary.tokens.get(id as usize))
    {
        model = model.unk_token(unk.clone());
    }
    let mut inner = tokenizers::Tokenizer::new(model.build().map_err(failed)?);
    let prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if prefix {
        steps.push(Prepend::new("▁".to_owned()).into());
    }
    steps.push(Replace::new(" ", "▁").map_err(failed)?.into());
    inner
        .with_normalizer(Some(Sequence::new(steps)))
        .map_err(failed)?;
    finish(vocabulary, inner, Spelling::SentencePiece, prefix, true)
}

/// Ids by text; of two equal texts the later counts, as in llama.cpp.
fn ids(vocabulary: &Vocabulary) -> HashMap<&str, TokenId> {
    vocabulary
        .tokens
        .iter()
        .map(String::as_str)
        .zip(0..)
        .collect()
}

fn owned(ids: &HashMap<&str, TokenId>) -> Vocab {
    ids.iter()
        .map(|(text, id)| ((*text).to_owned(), *id))
        .collect()
}

fn finish(
    vocabulary: &Vocabulary,
    mut inner: tokenizers::Tokenizer,
    spelling: Spelling,
    strip_leading_space: bool,
    add_bos: bool,
) -> Result<Parts, TextError> {
    let mut pieces = Pieces::default();
    let mut added = Vec::new();
    let ends: HashSet<TokenId> = vocabulary.eog.iter().copied().collect();
    for ((id, text), kind) in (0..).zip(&vocabulary.tokens).zip(&vocabulary.kinds) {
        // Some files mark the end of a turn as ordinary text, which it must never be.
        let kind = if ends.contains(&id) {
            TokenKind::Control
        } else {
            *kind
        };
        let special = matches!(kind, TokenKind::Control | TokenKind::Unknown);
        if special || kind == TokenKind::UserDefined {
            if !text.is_empty() {
                added.push(AddedToken::from(text.clone(), special).normalized(false));
            }
            pieces.set(id, text.as_bytes(), special)?;
        } else if kind == TokenKind::Byte && byte_token(text).is_none() {
            return Err(TextError::Malformed {
                field: "vocabulary",
                found: format!("of a byte token {text:?} with id {id}"),
                expected: "byte tokens are written <0xNN>".to_owned(),
            });
        } else {
            pieces.set(id, &spell(text, spelling), false)?;
        }
    }
    inner.add_tokens(added).map_err(failed)?;
    let pick = |wanted: Option<bool>, default: bool, id: Option<TokenId>| {
        id.filter(|_| wanted.unwrap_or(default))
    };
    Ok(Parts {
        inner,
        pieces,
        strip_leading_space,
        specials: Specials::Ids {
            before: pick(vocabulary.add_bos, add_bos, vocabulary.bos),
            after: pick(vocabulary.add_eos, false, vocabulary.eos),
        },
        bos: vocabulary.bos,
        eos: vocabulary.eos,
        eog: vocabulary.eog.clone(),
    })
}
