//! From a `tokenizer.json` to a tokenizer object. Owns the checks the tokenizers library does not
//! make (it panics on merges that do not fit their vocabulary); knows no GGUF.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::TextError;
use super::component::Components;
use super::piece::{Pieces, Spelling, spell};
use super::tokenizer::{Parts, Specials};
use crate::config::ends_generation;
use crate::types::TokenId;

#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    post_processor: Value,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    // Other kinds of model write a list here.
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Joined(String),
}

#[derive(Deserialize)]
struct Added {
    id: TokenId,
    content: String,
    #[serde(default)]
    special: bool,
}

/// Builds the parts of a tokenizer; `bos` and `eos` are the texts the configuration names.
pub(super) fn build(json: &[u8], bos: Option<&str>, eos: Option<&str>) -> Result<Parts, TextError> {
    let file: File = serde_json::from_slice(json).map_err(|e| TextError::Malformed {
        field: "tokenizer.json",
        found: format!("no tokenizer ({e})"),
        expected: "it must be one; download it again".to_owned(),
    })?;
    let vocab = check_model(&file.model)?;
    if names_type(&file.normalizer, &["Precompiled"]) {
        return Err(TextError::Unsupported {
            field: "normalizer",
            found: "Precompiled".to_owned(),
            supported: "all other normalizers".to_owned(),
        });
    }
    Components {
        normalizer: &file.normalizer,
        pre_tokenizer: &file.pre_tokenizer,
        decoder: &file.decoder,
        post_processor: &file.post_processor,
    }
    .check()?;
    let (spelling, strip_leading_space) = decoder(&file.decoder)?;

    let mut pieces = Pieces::default();
    for (token, &id) in &vocab {
        pieces.set(id, &spell(token, spelling), false)?;
    }
    for added in &file.added_tokens {
        pieces.set(added.id, added.content.as_bytes(), added.special)?;
    }

    let mut inner =
        tokenizers::Tokenizer::from_bytes(json).map_err(|e| TextError::Tokenizer(e.to_string()))?;
    // A prompt is what it is: cutting and padding are for training.
    inner
        .with_truncation(None)
        .map_err(|e| TextError::Tokenizer(e.to_string()))?;
    inner.with_padding(None);
    let id = |text: &str| inner.token_to_id(text);
    let (bos, eos) = (bos.and_then(id), eos.and_then(id));
    let mut eog: Vec<TokenId> = file
        .added_tokens
        .iter()
        .filter(|added| ends_generation(&added.content, added.special))
        .map(|added| added.id)
        .chain(eos)
        .collect();
    eog.sort_unstable();
    eog.dedup();
    Ok(Parts {
        inner,
        pieces,
        strip_leading_space,
        specials: Specials::PostProcessor,
        bos,
        eos,
        eog,
    })
}

/// The vocabulary, once it is known to be a BPE whose merges fit it.
fn check_model(model: &Model) -> Result<HashMap<String, TokenId>, TextError> {
    let unsupported = |field, found: String| TextError::Unsupported {
        field,
        found,
        supported: "BPE without dropout, prefixes and suffixes".to_owned(),
    };
    // Old files leave the type out; BPE is the one with merges.
    match model.kind.as_deref() {
        Some("BPE") => {}
        None if !model.merges.is_empty() => {}
        other => {
            return Err(unsupported(
                "model",
                format!("{:?}", other.unwrap_or("unnamed")),
            ));
        }
    }
    if let Some(dropout) = model.dropout
        && dropout != 0.0
    {
        return Err(unsupported("dropout", dropout.to_string()));
    }
    for (field, affix) in [
        (
            "continuing_subword_prefix",
            &model.continuing_subword_prefix,
        ),
        ("end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        if let Some(affix) = affix
            && !affix.is_empty()
        {
            return Err(unsupported(field, format!("{affix:?}")));
        }
    }
    let Value::Object(entries) = &model.vocab else {
        return Err(unsupported("vocabulary", "no object".to_owned()));
    };
    let mut vocab = HashMap::new();
    for (token, id) in entries {
        let id = id.as_u64().and_then(|id| TokenId::try_from(id).ok());
        let id = id.ok_or_else(|| TextError::Malformed {
            field: "vocabulary",
            found: format!("of an entry {token:?} without an id"),
            expected: "every token has an id below 2^32".to_owned(),
        })?;
        vocab.insert(token.clone(), id);
    }
    for merge in &model.merges {
        let pair = match merge {
            Merge::Pair(a, b) => Some((a.as_str(), b.as_str())),
            Merge::Joined(joined) => joined.split_once(' '),
        };
        let fits = pair.is_some_and(|(a, b)| {
            [a, b, &format!("{a}{b}")]
                .iter()
                .all(|piece| vocab.contains_key(*piece))
        });
        if !fits {
            return Err(TextError::Malformed {
                field: "list of merges",
                found: format!("{pair:?}"),
                expected: "a merge is two tokens that join to a third".to_owned(),
            });
        }
    }
    Ok(vocab)
}

/// Whether a component, or one nested in it, is of one of these types.
fn names_type(component: &Value, types: &[&str]) -> bool {
    match component {
        Value::Object(fields) => {
            let own = fields.get("type").and_then(Value::as_str);
            own.is_some_and(|own| types.contains(&own))
                || fields.values().any(|v| names_type(v, types))
        }
        Value::Array(items) => items.iter().any(|v| names_type(v, types)),
        _ => false,
    }
}

/// How the decoder spells tokens, and whether it drops the space a text begins with.
fn decoder(decoder: &Value) -> Result<(Spelling, bool), TextError> {
    if names_type(decoder, &["ByteLevel"]) {
        Ok((Spelling::ByteLevel, false))
    } else if names_type(decoder, &["ByteFallback", "Metaspace"]) {
        let never = decoder.get("prepend_scheme").and_then(Value::as_str) == Some("never");
        let strips =
            names_type(decoder, &["Strip"]) || (names_type(decoder, &["Metaspace"]) && !never);
        Ok((Spelling::SentencePiece, strips))
    } else {
        Err(TextError::Unsupported {
            field: "decoder",
            found: decoder
                .get("type")
                .map_or_else(|| "missing".to_owned(), Value::to_string),
            supported: "ByteLevel, ByteFallback, Metaspace".to_owned(),
        })
    }
}
