//! From a Hugging Face `config.json` (both the form of the Hub and the one transformers 5 writes)
//! and `generation_config.json` to a [`ModelConfig`]. Knows no tensors.

use serde_json::{Map, Value};

use super::WeightsError;
use crate::config::{
    Architecture, LayerConfig, MAX_LAYERS, ModelConfig, RopePairing, RopeParameters, RopeScaling,
};
use crate::types::TokenId;

/// Name of the configuration file.
pub(super) const CONFIG: &str = "config.json";

/// A JSON object, with errors that name file and field.
pub(super) struct Fields<'a> {
    file: &'a str,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(file: &'a str, value: &'a Value) -> Result<Self, WeightsError> {
        match value {
            Value::Object(object) => Ok(Self { file, object }),
            _ => Err(WeightsError::malformed(
                file,
                "the file",
                "no JSON object",
                "it must be one",
            )),
        }
    }

    /// A field that is there and not null.
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    fn wrong(&self, field: &str, value: &Value, expected: &str) -> WeightsError {
        // Long values are cut: this is a message, not a dump.
        let found: String = value.to_string().chars().take(80).collect();
        WeightsError::malformed(self.file, field, found, expected)
    }

    fn missing(&self, field: &str) -> WeightsError {
        WeightsError::MissingField {
            file: self.file.to_owned(),
            field: field.to_owned(),
            remedy: "download the model's files again".to_owned(),
        }
    }

    fn count(&self, field: &str) -> Result<Option<usize>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .map(Some)
                .ok_or_else(|| self.wrong(field, value, "it must be a count")),
        }
    }

    fn need_count(&self, field: &str) -> Result<usize, WeightsError> {
        self.count(field)?.ok_or_else(|| self.missing(field))
    }

    fn float(&self, field: &str) -> Result<Option<f32>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(x) => Ok(Some(x as f32)),
                None => Err(self.wrong(field, value, "it must be a number")),
            },
        }
    }

    fn need_float(&self, field: &str) -> Result<f32, WeightsError> {
        self.float(field)?.ok_or_else(|| self.missing(field))
    }

    fn bool(&self, field: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_bool()
                .map(Some)
                .ok_or_else(|| self.wrong(field, value, "it must be true or false")),
        }
    }

    fn string(&self, field: &str) -> Result<Option<&'a str>, WeightsError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(field, value, "it must be text")),
        }
    }

    /// One id or a list of ids.
    pub(super) fn tokens(&self, field: &str) -> Result<Vec<TokenId>, WeightsError> {
        let Some(value) = self.get(field) else {
            return Ok(Vec::new());
        };
        let items = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        items
            .iter()
            .map(|item| {
                item.as_u64()
                    .and_then(|id| TokenId::try_from(id).ok())
                    .ok_or_else(|| self.wrong(field, value, "it must be a token id or a list"))
            })
            .collect()
    }
}

/// The configuration in `config.json`, with the ends of generation of `generation_config.json`.
pub(super) fn model_config(
    config: &Value,
    generation: Option<(&str, &Value)>,
) -> Result<ModelConfig, WeightsError> {
    let fields = Fields::of(CONFIG, config)?;
    match fields.string("model_type")? {
        Some("llama") => {}
        Some(other) => {
            return Err(WeightsError::unsupported(
                CONFIG,
                "model_type",
                format!("{other:?}"),
                "llama",
            ));
        }
        None => return Err(fields.missing("model_type")),
    }
    if let Some(act) = fields.string("hidden_act")?
        && !matches!(act, "silu" | "swish")
    {
        return Err(WeightsError::unsupported(
            CONFIG,
            "hidden_act",
            format!("{act:?}"),
            "silu",
        ));
    }
    if let Some(quantization) = fields.get("quantization_config") {
        let method = quantization.get("quant_method").and_then(Value::as_str);
        return Err(WeightsError::unsupported(
            CONFIG,
            "quantization_config",
            method.unwrap_or("given"),
            "unquantized safetensors (F32, F16, BF16), or quantized GGUF files",
        ));
    }
    let hidden_size = fields.need_count("hidden_size")?;
    let num_attention_heads = fields.need_count("num_attention_heads")?;
    let head_dim = match fields.count("head_dim")? {
        Some(dim) => dim,
        None => hidden_size
            .checked_div(num_attention_heads)
            .filter(|dim| dim * num_attention_heads == hidden_size)
            .ok_or_else(|| {
                WeightsError::malformed(
                    CONFIG,
                    "num_attention_heads",
                    num_attention_heads,
                    format!("it must divide hidden_size {hidden_size}"),
                )
            })?,
    };
    let (theta, scaling) = rope(&fields)?;
    let attention_bias = fields.bool("attention_bias")?.unwrap_or(false);
    let num_hidden_layers = fields.need_count("num_hidden_layers")?;

    let mut eos_token_ids = fields.tokens("eos_token_id")?;
    if let Some((file, generation)) = generation {
        eos_token_ids.extend(Fields::of(file, generation)?.tokens("eos_token_id")?);
    }
    eos_token_ids.sort_unstable();
    eos_token_ids.dedup();

    let config = ModelConfig {
        architecture: Architecture::Llama,
        vocab_size: fields.need_count("vocab_size")?,
        hidden_size,
        intermediate_size: fields.need_count("intermediate_size")?,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads: fields
            .count("num_key_value_heads")?
            .unwrap_or(num_attention_heads),
        head_dim,
        // From here on the defaults are those of transformers' LlamaConfig, which leaves fields at
        // their default out of the file.
        max_position_embeddings: fields.count("max_position_embeddings")?.unwrap_or(2048),
        rms_norm_eps: fields.float("rms_norm_eps")?.unwrap_or(1e-6),
        embedding_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        layers: vec![LayerConfig::default(); num_hidden_layers.min(MAX_LAYERS)],
        rotary_dim: head_dim,
        rope: RopeParameters { theta, scaling },
        rope_pairing: RopePairing::Halves,
        tie_word_embeddings: fields.bool("tie_word_embeddings")?.unwrap_or(false),
        qkv_bias: attention_bias,
        o_bias: attention_bias,
        mlp_bias: fields.bool("mlp_bias")?.unwrap_or(false),
        bos_token_id: fields.tokens("bos_token_id")?.first().copied(),
        eos_token_ids,
        ..ModelConfig::default()
    };
    config.check().map_err(|source| WeightsError::Config {
        file: CONFIG.to_owned(),
        source,
    })?;
    Ok(config)
}

/// Base and correction of the rotary embedding: `rope_parameters` (transformers 5), else
/// `rope_theta` and `rope_scaling`, whose kind older files call `type`.
fn rope(fields: &Fields<'_>) -> Result<(f32, RopeScaling), WeightsError> {
    let (name, value) = match fields.get("rope_parameters") {
        Some(value) => ("rope_parameters", Some(value)),
        None => ("rope_scaling", fields.get("rope_scaling")),
    };
    let top_theta = fields.float("rope_theta")?;
    let Some(value) = value else {
        return Ok((top_theta.unwrap_or(10_000.0), RopeScaling::None));
    };
    let Value::Object(object) = value else {
        return Err(fields.wrong(name, value, "it must be an object"));
    };
    let rope = Fields {
        file: fields.file,
        object,
    };
    let theta = rope.float("rope_theta")?.or(top_theta).unwrap_or(10_000.0);
    for holder in [fields, &rope] {
        if let Some(part) = holder.float("partial_rotary_factor")?
            && part != 1.0
        {
            return Err(WeightsError::unsupported(
                fields.file,
                "partial_rotary_factor",
                part,
                "1 (whole heads are rotated)",
            ));
        }
    }
    let kind = match rope.string("rope_type")? {
        Some(kind) => Some(kind),
        None => rope.string("type")?,
    };
    let scaling = match kind {
        None | Some("default") => RopeScaling::None,
        Some("linear") => RopeScaling::Linear {
            factor: rope.need_float("factor")?,
        },
        Some("llama3") => {
            let original = rope.need_count("original_max_position_embeddings")?;
            RopeScaling::Llama3 {
                factor: rope.need_float("factor")?,
                low_freq_factor: rope.need_float("low_freq_factor")?,
                high_freq_factor: rope.need_float("high_freq_factor")?,
                original_max_position_embeddings: u32::try_from(original).map_err(|_| {
                    WeightsError::malformed(
                        fields.file,
                        "original_max_position_embeddings",
                        original,
                        "it must be below 2^32",
                    )
                })?,
            }
        }
        Some(other) => {
            return Err(WeightsError::unsupported(
                fields.file,
                format!("{name}.rope_type"),
                format!("{other:?}"),
                "default, linear, llama3",
            ));
        }
    };
    Ok((theta, scaling))
}
