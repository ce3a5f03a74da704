//! From GGUF's keys to a [`ModelConfig`], a [`Vocabulary`] and the chat template. Owns the meaning
//! of the keys; knows no tensor data but the divisors of the rotary frequencies.

use super::WeightsError;
use super::gguf::{GgmlType, Gguf, GgufTensor, Value};
use super::names::{ROPE_FREQS, hf_name};
use super::source::read_vec;
use crate::config::{
    Architecture, END_OF_GENERATION_TOKENS, LayerConfig, MAX_LAYERS, ModelConfig, RopePairing,
    RopeParameters, RopeScaling, TextAssets, TokenKind, TokenizerAsset, Vocabulary,
};
use crate::types::TokenId;

/// The keys of one file, with errors that name it.
struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    fn file(&self) -> &str {
        self.gguf.source.name()
    }

    /// `llama.` and the rest of a key.
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn wrong(&self, key: &str, value: &Value, expected: &str) -> WeightsError {
        WeightsError::malformed(self.file(), key, value, expected)
    }

    fn missing(&self, key: &str) -> WeightsError {
        WeightsError::MissingField {
            file: self.file().to_owned(),
            field: key.to_owned(),
            remedy: "convert the model again with a current converter".to_owned(),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.gguf.metadata.get(key)
    }

    /// A count; an array of equal counts (one a layer) stands for the count.
    fn count(&self, key: &str) -> Result<Option<usize>, WeightsError> {
        let key = self.full(key);
        let Some(value) = self.get(&key) else {
            return Ok(None);
        };
        let number = if let Some(items) = value.as_integers() {
            match items.split_first() {
                Some((first, rest)) if rest.iter().all(|x| x == first) => {
                    u64::try_from(*first).ok()
                }
                _ => {
                    return Err(WeightsError::unsupported(
                        self.file(),
                        key,
                        "an array of different numbers",
                        "one number for all layers",
                    ));
                }
            }
        } else {
            value.as_u64()
        };
        number
            .and_then(|n| usize::try_from(n).ok())
            .map(Some)
            .ok_or_else(|| self.wrong(&key, value, "it must be a count"))
    }

    fn need_count(&self, key: &str) -> Result<usize, WeightsError> {
        self.count(key)?
            .ok_or_else(|| self.missing(&self.full(key)))
    }

    fn float(&self, key: &str) -> Result<Option<f32>, WeightsError> {
        let key = self.full(key);
        match self.get(&key) {
            None => Ok(None),
            // Files hold f32, which the widening kept.
            Some(value) => match value.as_f64() {
                Some(x) => Ok(Some(x as f32)),
                None => Err(self.wrong(&key, value, "it must be a number")),
            },
        }
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value
                .as_bool()
                .map(Some)
                .ok_or_else(|| self.wrong(key, value, "it must be true or false")),
        }
    }

    fn string(&self, key: &str) -> Result<Option<&'a str>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(key, value, "it must be text")),
        }
    }

    fn token(&self, key: &str, vocab_size: usize) -> Result<Option<TokenId>, WeightsError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(id) if id < vocab_size as u64 => Ok(TokenId::try_from(id).ok()),
            // Writers say "none" with the largest value of the type.
            Some(id) if id == u64::from(u32::MAX) => Ok(None),
            _ => Err(self.wrong(
                key,
                value,
                &format!("it must be an id below the vocabulary's {vocab_size}"),
            )),
        }
    }
}

fn keys(gguf: &Gguf) -> Result<Keys<'_>, WeightsError> {
    let mut keys = Keys {
        gguf,
        architecture: "",
    };
    keys.architecture = keys
        .string("general.architecture")?
        .ok_or_else(|| keys.missing("general.architecture"))?;
    Ok(keys)
}

fn tensor<'a>(gguf: &'a Gguf, name: &str) -> Option<&'a GgufTensor> {
    gguf.tensors.iter().find(|t| t.name == name)
}

/// The configuration of a llama-shaped GGUF file.
pub(super) fn model_config(gguf: &Gguf) -> Result<ModelConfig, WeightsError> {
    let keys = keys(gguf)?;
    if keys.architecture != "llama" {
        return Err(WeightsError::unsupported(
            keys.file(),
            "general.architecture",
            format!("{:?}", keys.architecture),
            "llama",
        ));
    }
    if let Some(experts) = keys.count("expert_count")?
        && experts > 0
    {
        return Err(WeightsError::unsupported(
            keys.file(),
            keys.full("expert_count"),
            experts,
            "dense feed-forward networks (no experts)",
        ));
    }
    let hidden_size = keys.need_count("embedding_length")?;
    let num_attention_heads = keys.need_count("attention.head_count")?;
    let head_dim = match keys.count("attention.key_length")? {
        Some(dim) => dim,
        None => hidden_size
            .checked_div(num_attention_heads)
            .filter(|dim| dim * num_attention_heads == hidden_size)
            .ok_or_else(|| {
                WeightsError::malformed(
                    keys.file(),
                    keys.full("attention.head_count"),
                    num_attention_heads,
                    format!("it must divide the embedding length {hidden_size}"),
                )
            })?,
    };
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(dim) = keys.count(key)?
            && dim != head_dim
        {
            return Err(WeightsError::unsupported(
                keys.file(),
                keys.full(key),
                dim,
                format!("the same as the key length, {head_dim}"),
            ));
        }
    }
    let vocab_size = match keys.count("vocab_size")? {
        Some(size) => size,
        None => tensor(gguf, "token_embd.weight")
            .and_then(|t| t.shape.first().copied())
            .ok_or_else(|| keys.missing(&keys.full("vocab_size")))?,
    };
    let has_bias = |parts: &[&str]| {
        gguf.tensors
            .iter()
            .any(|t| t.name.ends_with(".bias") && parts.iter().any(|part| t.name.contains(part)))
    };
    let num_hidden_layers = keys.need_count("block_count")?;
    let config = ModelConfig {
        architecture: Architecture::Llama,
        vocab_size,
        hidden_size,
        intermediate_size: keys.need_count("feed_forward_length")?,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads: keys
            .count("attention.head_count_kv")?
            .unwrap_or(num_attention_heads),
        head_dim,
        max_position_embeddings: keys.need_count("context_length")?,
        rms_norm_eps: keys
            .float("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| keys.missing(&keys.full("attention.layer_norm_rms_epsilon")))?,
        embedding_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        layers: vec![LayerConfig::default(); num_hidden_layers.min(MAX_LAYERS)],
        rotary_dim: head_dim,
        rope: RopeParameters {
            theta: keys.float("rope.freq_base")?.unwrap_or(10_000.0),
            scaling: rope_scaling(&keys, head_dim)?,
        },
        rope_pairing: RopePairing::Interleaved,
        tie_word_embeddings: tensor(gguf, "output.weight").is_none(),
        qkv_bias: has_bias(&[".attn_q.", ".attn_k.", ".attn_v."]),
        o_bias: has_bias(&[".attn_output."]),
        mlp_bias: has_bias(&[".ffn_gate.", ".ffn_up.", ".ffn_down."]),
        bos_token_id: keys.token("tokenizer.ggml.bos_token_id", vocab_size)?,
        eos_token_ids: end_of_generation(&keys, vocab_size)?,
        ..ModelConfig::default()
    };
    config.check().map_err(|source| WeightsError::Config {
        file: keys.file().to_owned(),
        source,
    })?;
    Ok(config)
}

fn rope_scaling(keys: &Keys<'_>, head_dim: usize) -> Result<RopeScaling, WeightsError> {
    let file = keys.file();
    let key = keys.full("rope.scaling.type");
    // `rope.scale_linear` is what older writers used.
    let factor = match keys.float("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.float("rope.scale_linear")?,
    };
    let linear = match keys.string(&key)? {
        None => factor.filter(|&f| f != 0.0 && f != 1.0),
        Some("none") => None,
        Some("linear") => {
            Some(factor.ok_or_else(|| keys.missing(&keys.full("rope.scaling.factor")))?)
        }
        Some(other) => {
            return Err(WeightsError::unsupported(
                file,
                key,
                format!("{other:?}"),
                "none, linear, and the tensor rope_freqs.weight",
            ));
        }
    };
    let Some(freqs) = tensor(keys.gguf, ROPE_FREQS) else {
        return Ok(linear.map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor }));
    };
    if linear.is_some() {
        return Err(WeightsError::unsupported(
            file,
            ROPE_FREQS,
            "given together with linear scaling",
            "one of the two",
        ));
    }
    if freqs.ggml_type.name() != "F32" || freqs.shape != [head_dim / 2] {
        return Err(WeightsError::malformed(
            file,
            format!("tensor {ROPE_FREQS}"),
            format!("{} of shape {:?}", freqs.ggml_type.name(), freqs.shape),
            format!("it must be F32 of shape [{}]", head_dim / 2),
        ));
    }
    let bytes = read_vec(&*keys.gguf.source, freqs.offset, freqs.bytes, ROPE_FREQS)?;
    let (numbers, _) = bytes.as_chunks::<4>();
    Ok(RopeScaling::Factors(
        numbers.iter().map(|&b| f32::from_le_bytes(b)).collect(),
    ))
}

/// Every id that ends a generation: those the file names, and those known by their text.
fn end_of_generation(keys: &Keys<'_>, vocab_size: usize) -> Result<Vec<TokenId>, WeightsError> {
    let mut ids = Vec::new();
    for name in ["eos", "eot", "eom"] {
        ids.extend(keys.token(&format!("tokenizer.ggml.{name}_token_id"), vocab_size)?);
    }
    if let Some(tokens) = keys
        .get("tokenizer.ggml.tokens")
        .and_then(Value::as_strings)
    {
        for (id, text) in (0..).zip(tokens.iter().take(vocab_size)) {
            if END_OF_GENERATION_TOKENS.contains(&text.as_str()) {
                ids.push(id);
            }
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
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
    const TOKENS: &str = "tokenizer.ggml.tokens";
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

    const TYPES: &str = "tokenizer.ggml.token_type";
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
                    3 => Ok(TokenKind::Control),
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

/// The Hugging Face name of a tensor, or why there is none.
pub(super) fn tensor_name(file: &str, gguf: &str) -> Result<String, WeightsError> {
    hf_name(gguf).ok_or_else(|| {
        WeightsError::unsupported(
            file,
            format!("tensor {gguf}"),
            "no tensor of a llama model",
            "dense llama models",
        )
    })
}

/// The element type of a tensor, or that it is not supported.
pub(super) fn tensor_dtype(
    file: &str,
    name: &str,
    ty: GgmlType,
) -> Result<super::DType, WeightsError> {
    ty.dtype().ok_or_else(|| {
        WeightsError::unsupported(
            file,
            format!("tensor {name}"),
            format!("of type {}", ty.name()),
            super::DType::supported(),
        )
    })
}
