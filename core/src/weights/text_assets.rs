//! What a model's files say about text: vocabulary or `tokenizer.json`, ends of generation, chat
//! template. Owns the meaning of those keys and fields; knows no tensors and splits no text.

use std::sync::Arc;

use serde_json::Value as Json;

use super::WeightsError;
use super::checkpoint::{MAX_CONFIG, parse_json};
use super::gguf::{Gguf, Value};
use super::keys::{Keys, keys};
use super::safetensors::open_if_there;
use super::source::{ByteSource, ModelFiles, read_all};
use crate::config::{TextAssets, TokenKind, TokenizerAsset, Vocabulary, ends_generation};
use crate::types::TokenId;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
/// The type of tokens that have no text of their own.
const CONTROL: i64 = 3;

/// Longest tokenizer file taken, bytes.
const MAX_TOKENIZER: u64 = 128 << 20;

/// The vocabulary of a GGUF file of any architecture, also one without tensors; `None` where it has
/// none.
///
/// # Errors
/// [`WeightsError`], naming file and key.
pub fn gguf_vocabulary(source: Arc<dyn ByteSource>) -> Result<Option<Vocabulary>, WeightsError> {
    vocabulary(&Gguf::read(source)?)
}

/// What a GGUF file of any architecture says about text, also one without tensors. Of a split model
/// any part may be named.
///
/// # Errors
/// [`WeightsError`], naming file and key.
pub fn gguf_text(files: &dyn ModelFiles, file: &str) -> Result<TextAssets, WeightsError> {
    text_assets(&Gguf::read_first_part(files, file)?)
}

/// What a Hugging Face directory says about text, also one without weights: `tokenizer.json`, and the
/// template of `chat_template.jinja`, else of `tokenizer_config.json`.
///
/// # Errors
/// [`WeightsError`], naming file and field.
pub fn hf_text(files: &dyn ModelFiles) -> Result<TextAssets, WeightsError> {
    let mut assets = TextAssets::default();
    if let Some(source) = open_if_there(files, "tokenizer.json")? {
        assets.tokenizer = Some(TokenizerAsset::Json(read_all(&*source, MAX_TOKENIZER)?));
    }
    const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
    if let Some(source) = open_if_there(files, TOKENIZER_CONFIG)? {
        // It repeats every added token, and so may be longer than other configurations.
        let config = parse_json(&*source, TOKENIZER_CONFIG, MAX_CONFIG * 8)?;
        // A token is its text, or an object that holds it.
        let token = |key: &str| {
            let value = config.get(key)?;
            let text = value.get("content").unwrap_or(value);
            text.as_str().map(str::to_owned)
        };
        assets.bos_token = token("bos_token");
        assets.eos_token = token("eos_token");
        assets.chat_template = match config.get("chat_template") {
            Some(Json::String(template)) => Some(template.clone()),
            // Several named templates: the one for plain conversations is "default".
            Some(Json::Array(named)) => named
                .iter()
                .find(|t| t.get("name").and_then(Json::as_str) == Some("default"))
                .and_then(|t| t.get("template")?.as_str().map(str::to_owned)),
            _ => None,
        };
    }
    const TEMPLATE: &str = "chat_template.jinja";
    if let Some(source) = open_if_there(files, TEMPLATE)? {
        let bytes = read_all(&*source, MAX_CONFIG)?;
        assets.chat_template =
            Some(String::from_utf8(bytes).map_err(|e| {
                WeightsError::malformed(TEMPLATE, "the file", e, "it must be UTF-8")
            })?);
    }
    Ok(assets)
}

/// What a GGUF file says about text.
pub(super) fn text_assets(gguf: &Gguf) -> Result<TextAssets, WeightsError> {
    let chat_template = keys(gguf)?
        .string("tokenizer.chat_template")?
        .map(str::to_owned);
    let vocabulary = vocabulary(gguf)?;
    let text = |id: Option<TokenId>| {
        let tokens = &vocabulary.as_ref()?.tokens;
        tokens.get(id? as usize).cloned()
    };
    Ok(TextAssets {
        chat_template,
        bos_token: text(vocabulary.as_ref().and_then(|v| v.bos)),
        eos_token: text(vocabulary.as_ref().and_then(|v| v.eos)),
        tokenizer: vocabulary.map(TokenizerAsset::Vocabulary),
    })
}

/// The vocabulary of a GGUF file of any architecture; `None` where it has none.
///
/// # Errors
/// [`WeightsError::Malformed`] where lists do not fit each other or an id is out of range.
pub(super) fn vocabulary(gguf: &Gguf) -> Result<Option<Vocabulary>, WeightsError> {
    let keys = keys(gguf)?;
    let file = keys.file();
    let model = match keys.string("tokenizer.ggml.model")? {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(model) => model.to_owned(),
    };
    let tokens = match keys.get(TOKENS) {
        None => return Err(keys.missing(TOKENS)),
        Some(value) => value
            .as_strings()
            .ok_or_else(|| keys.wrong(TOKENS, value, "it must be an array of text"))?
            .to_vec(),
    };
    let size = tokens.len();
    let fits = |key: &str, len: usize| {
        if len == size {
            return Ok(());
        }
        Err(WeightsError::malformed(
            file,
            key,
            format!("{len} entries long"),
            format!("there are {size} tokens"),
        ))
    };

    let kinds = match keys.get(TYPES) {
        None => vec![TokenKind::Normal; size],
        Some(value) => {
            let ids = value
                .as_integers()
                .ok_or_else(|| keys.wrong(TYPES, value, "it must be an array of integers"))?;
            fits(TYPES, ids.len())?;
            ids.into_iter()
                .map(|id| match id {
                    // 0 is "undefined", which old writers left where they knew no better.
                    0 | 1 => Ok(TokenKind::Normal),
                    2 => Ok(TokenKind::Unknown),
                    CONTROL => Ok(TokenKind::Control),
                    4 => Ok(TokenKind::UserDefined),
                    5 => Ok(TokenKind::Unused),
                    6 => Ok(TokenKind::Byte),
                    _ => Err(WeightsError::malformed(
                        file,
                        TYPES,
                        id,
                        "token types are 0 to 6",
                    )),
                })
                .collect::<Result<_, _>>()?
        }
    };
    const SCORES: &str = "tokenizer.ggml.scores";
    let scores = match keys.get(SCORES) {
        None => Vec::new(),
        Some(value) => {
            let scores = value
                .as_f32s()
                .ok_or_else(|| keys.wrong(SCORES, value, "it must be an array of F32"))?;
            fits(SCORES, scores.len())?;
            scores.to_vec()
        }
    };
    const MERGES: &str = "tokenizer.ggml.merges";
    let merges = match keys.get(MERGES) {
        None => Vec::new(),
        Some(value) => value
            .as_strings()
            .ok_or_else(|| keys.wrong(MERGES, value, "it must be an array of text"))?
            .to_vec(),
    };
    Ok(Some(Vocabulary {
        model,
        pre: keys.string("tokenizer.ggml.pre")?.map(str::to_owned),
        kinds,
        scores,
        merges,
        bos: keys.token("tokenizer.ggml.bos_token_id", size)?,
        eos: keys.token("tokenizer.ggml.eos_token_id", size)?,
        unk: keys.token("tokenizer.ggml.unknown_token_id", size)?,
        eog: end_of_generation(&keys, size)?,
        add_bos: keys.bool("tokenizer.ggml.add_bos_token")?,
        add_eos: keys.bool("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: keys.bool("tokenizer.ggml.add_space_prefix")?,
        tokens,
    }))
}

/// Every id that ends a generation: those the file names, those between the files of a program where
/// a gap was to be filled, and those known by their text.
pub(super) fn end_of_generation(
    keys: &Keys<'_>,
    vocab_size: usize,
) -> Result<Vec<TokenId>, WeightsError> {
    let mut ids = Vec::new();
    for name in ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"] {
        ids.extend(keys.token(&format!("tokenizer.ggml.{name}_token_id"), vocab_size)?);
    }
    let kinds = keys.get(TYPES).and_then(Value::as_integers);
    if let Some(tokens) = keys.get(TOKENS).and_then(Value::as_strings) {
        for (id, text) in (0..).zip(tokens.iter().take(vocab_size)) {
            let kind = kinds.as_ref().and_then(|kinds| kinds.get(id as usize));
            if ends_generation(text, kind == Some(&CONTROL)) {
                ids.push(id);
            }
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
