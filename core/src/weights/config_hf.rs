//! From a Hugging Face `config.json` (both the form of the Hub and the one transformers 5 writes)
//! and `generation_config.json` to a [`ModelConfig`]. Owns the meaning of the fields that all
//! families share; knows no tensors. Defaults of absent fields are those of transformers.

use serde_json::Value;

use super::WeightsError;
use super::families::{self, yarn_attention_factor};
use super::fields::Fields;
use crate::config::{
    Activation, LayerConfig, MAX_LAYERS, ModelConfig, RopePairing, RopeParameters, RopeScaling,
};
use crate::types::TokenId;

/// Name of the configuration file.
pub(super) const CONFIG: &str = "config.json";

/// What a family's configuration class has where `config.json` says nothing.
pub(super) struct Defaults {
    pub(super) max_position_embeddings: usize,
    /// `None`: what the rotary numbers say, else the field above.
    pub(super) original_max_position_embeddings: Option<usize>,
    pub(super) rms_norm_eps: f32,
    pub(super) rope_theta: f32,
    pub(super) tie_word_embeddings: bool,
    /// `None`: hidden size / heads.
    pub(super) head_dim: Option<usize>,
    /// `None`: as many as there are query heads.
    pub(super) num_key_value_heads: Option<usize>,
    /// The field that names the activation, and its default.
    pub(super) activation: (&'static str, &'static str),
    /// A name that stands for that default here, whatever it means elsewhere.
    pub(super) activation_alias: Option<&'static str>,
    /// Further names of `longrope`.
    pub(super) longrope_aliases: &'static [&'static str],
    pub(super) bos_token_id: Option<TokenId>,
    pub(super) eos_token_id: Option<TokenId>,
}

/// Llama's; other families name their differences.
pub(super) const DEFAULTS: Defaults = Defaults {
    max_position_embeddings: 2048,
    original_max_position_embeddings: None,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000.0,
    tie_word_embeddings: false,
    head_dim: None,
    num_key_value_heads: None,
    activation: ("hidden_act", "silu"),
    activation_alias: None,
    longrope_aliases: &[],
    bos_token_id: Some(1),
    eos_token_id: Some(2),
};

/// The configuration in `config.json`, with the ends of generation of `generation_config.json`.
pub(super) fn model_config(
    config: &Value,
    generation: Option<(&str, &Value)>,
) -> Result<ModelConfig, WeightsError> {
    let fields = Fields::of(CONFIG, config)?;
    let family = families::of_hf(&fields)?;
    let defaults = &family.hf_defaults;
    refuse(&fields)?;
    let hidden_size = fields.need_count("hidden_size")?;
    let num_attention_heads = fields.need_count("num_attention_heads")?;
    let head_dim = match fields.count_or("head_dim", defaults.head_dim)? {
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
    let max_position_embeddings = fields
        .count("max_position_embeddings")?
        .unwrap_or(defaults.max_position_embeddings);
    let attention_bias = fields.bool("attention_bias")?.unwrap_or(false);
    let num_hidden_layers = fields.need_count("num_hidden_layers")?;

    let mut config = ModelConfig {
        architecture: family.architecture,
        vocab_size: fields.need_count("vocab_size")?,
        hidden_size,
        intermediate_size: fields.need_count("intermediate_size")?,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads: fields
            .count_or("num_key_value_heads", defaults.num_key_value_heads)?
            .unwrap_or(num_attention_heads),
        head_dim,
        max_position_embeddings,
        rms_norm_eps: fields
            .float("rms_norm_eps")?
            .unwrap_or(defaults.rms_norm_eps),
        hidden_act: activation(&fields, defaults)?,
        embedding_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        layers: vec![LayerConfig::default(); num_hidden_layers.min(MAX_LAYERS)],
        rotary_dim: head_dim,
        rope_pairing: RopePairing::Halves,
        tie_word_embeddings: fields
            .bool("tie_word_embeddings")?
            .unwrap_or(defaults.tie_word_embeddings),
        qkv_bias: attention_bias,
        o_bias: attention_bias,
        mlp_bias: fields.bool("mlp_bias")?.unwrap_or(false),
        ..ModelConfig::default()
    };
    (config.bos_token_id, config.eos_token_ids) = ends(&fields, generation, defaults, &config)?;
    (family.hf_fill)(&fields, defaults, &mut config)?;
    config.check().map_err(|source| WeightsError::Config {
        file: CONFIG.to_owned(),
        source,
    })?;
    Ok(config)
}

/// Fields that would change what is computed, in ways the engine does not know.
fn refuse(fields: &Fields<'_>) -> Result<(), WeightsError> {
    if let Some(quantization) = fields.get("quantization_config") {
        let method = quantization.get("quant_method").and_then(Value::as_str);
        return Err(fields.unsupported(
            "quantization_config",
            method.unwrap_or("given"),
            "unquantized safetensors (F32, F16, BF16), or quantized GGUF files",
        ));
    }
    for (field, neutral) in [
        ("use_bidirectional_attention", false),
        ("use_mrope", false),
        ("is_causal", true),
    ] {
        if let Some(found) = fields.bool(field)?
            && found != neutral
        {
            return Err(fields.unsupported(field, found, neutral.to_string()));
        }
    }
    Ok(())
}

fn activation(fields: &Fields<'_>, defaults: &Defaults) -> Result<Activation, WeightsError> {
    let (field, default) = defaults.activation;
    let said = fields
        .string(field)?
        .filter(|&name| Some(name) != defaults.activation_alias);
    match said.unwrap_or(default) {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        other => Err(fields.unsupported(field, format!("{other:?}"), "silu, gelu_pytorch_tanh")),
    }
}

/// Beginning of sequence, and every end of generation of both files.
fn ends(
    fields: &Fields<'_>,
    generation: Option<(&str, &Value)>,
    defaults: &Defaults,
    config: &ModelConfig,
) -> Result<(Option<TokenId>, Vec<TokenId>), WeightsError> {
    let known = |id: &TokenId| (*id as usize) < config.vocab_size;
    let bos = if fields.has("bos_token_id") {
        fields.tokens("bos_token_id")?.first().copied()
    } else {
        defaults.bos_token_id.filter(known)
    };
    let mut eos = fields.tokens("eos_token_id")?;
    if let Some((file, generation)) = generation {
        let ids = Fields::of(file, generation)?.tokens("eos_token_id")?;
        if let Some(id) = ids.iter().find(|id| !known(id)) {
            let expected = format!("it must be below vocab_size {}", config.vocab_size);
            return Err(WeightsError::malformed(file, "eos_token_id", id, expected));
        }
        eos.extend(ids);
    }
    if eos.is_empty() && !fields.has("eos_token_id") {
        eos.extend(defaults.eos_token_id.filter(known));
    }
    eos.sort_unstable();
    eos.dedup();
    Ok((bos, eos))
}

/// Layers as `layer_types` names them, where it is there. Gives whether it was.
pub(super) fn layer_types(
    fields: &Fields<'_>,
    config: &mut ModelConfig,
) -> Result<bool, WeightsError> {
    let Some(types) = fields.strings("layer_types")? else {
        return Ok(false);
    };
    if types.len() != config.num_hidden_layers {
        return Err(WeightsError::malformed(
            fields.file,
            "layer_types",
            format!("{} long", types.len()),
            format!("there are {} layers", config.num_hidden_layers),
        ));
    }
    for (layer, name) in config.layers.iter_mut().zip(types) {
        layer.sliding = match name {
            "full_attention" => false,
            "sliding_attention" => true,
            other => {
                return Err(fields.unsupported(
                    "layer_types",
                    format!("{other:?}"),
                    "full_attention, sliding_attention",
                ));
            }
        };
    }
    Ok(true)
}

/// The rotary embedding of a model that has one: `rope_scaling`, else `rope_parameters`
/// (transformers 5), with the base inside or beside it.
pub(super) fn rope(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &ModelConfig,
) -> Result<RopeParameters, WeightsError> {
    let (name, inner) = rope_object(fields)?;
    let theta = fields.float("rope_theta")?.unwrap_or(defaults.rope_theta);
    let Some(inner) = inner else {
        return Ok(RopeParameters {
            theta,
            scaling: RopeScaling::None,
        });
    };
    rope_of(fields, name, &inner, theta, defaults, config)
}

/// The object that holds the rotary embedding's numbers, and its name.
pub(super) fn rope_object<'a>(
    fields: &Fields<'a>,
) -> Result<(&'static str, Option<Fields<'a>>), WeightsError> {
    match fields.inner("rope_scaling")? {
        Some(inner) if !inner.object.is_empty() => Ok(("rope_scaling", Some(inner))),
        _ => Ok(("rope_parameters", fields.inner("rope_parameters")?)),
    }
}

/// Rotated dimensions of a head, by `partial_rotary_factor` of either place; all where absent.
pub(super) fn rotary_dim(fields: &Fields<'_>, config: &ModelConfig) -> Result<usize, WeightsError> {
    let (_, inner) = rope_object(fields)?;
    let inside = match inner {
        Some(inner) => inner.double("partial_rotary_factor")?,
        None => None,
    };
    let factor = match inside {
        Some(factor) => Some(factor),
        None => fields.double("partial_rotary_factor")?,
    };
    let factor = factor.unwrap_or(1.0);
    if !(factor > 0.0 && factor <= 1.0) {
        return Err(WeightsError::malformed(
            fields.file,
            "partial_rotary_factor",
            factor,
            "it must be above 0 and at most 1",
        ));
    }
    Ok((factor * config.head_dim as f64) as usize)
}

/// One rotary embedding's object, `name` in the file.
pub(super) fn rope_of(
    fields: &Fields<'_>,
    name: &str,
    rope: &Fields<'_>,
    theta: f32,
    defaults: &Defaults,
    config: &ModelConfig,
) -> Result<RopeParameters, WeightsError> {
    let kind = match rope.string("rope_type")? {
        Some(kind) => Some(kind),
        None => rope.string("type")?,
    };
    let kind = match kind {
        Some(alias) if defaults.longrope_aliases.contains(&alias) => Some("longrope"),
        kind => kind,
    };
    let original = || -> Result<u32, WeightsError> {
        const FIELD: &str = "original_max_position_embeddings";
        let length = match fields.count_or(FIELD, defaults.original_max_position_embeddings)? {
            Some(length) => length,
            None => rope.count(FIELD)?.unwrap_or(config.max_position_embeddings),
        };
        u32::try_from(length)
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| {
                WeightsError::malformed(fields.file, FIELD, length, "it must be from 1 to 2^32 - 1")
            })
    };
    // Where it is absent, the context grew from the original one to what there is.
    let factor = |original: u32| -> Result<f32, WeightsError> {
        let grown = config.max_position_embeddings as f64 / f64::from(original);
        Ok(rope.float("factor")?.unwrap_or(grown as f32))
    };
    let given = rope.float("attention_factor")?;
    let scaling = match kind {
        None | Some("default") => RopeScaling::None,
        Some("linear") => RopeScaling::Linear {
            factor: rope.need_float("factor")?,
        },
        Some("llama3") => RopeScaling::Llama3 {
            factor: rope.need_float("factor")?,
            low_freq_factor: rope.need_float("low_freq_factor")?,
            high_freq_factor: rope.need_float("high_freq_factor")?,
            original_max_position_embeddings: original()?,
        },
        Some("yarn") => {
            let original = original()?;
            let factor = factor(original)?;
            let scales = [rope.float("mscale")?, rope.float("mscale_all_dim")?];
            let by_scales = match scales.map(|s| s.filter(|&s| s != 0.0)) {
                [Some(scale), Some(all)] => {
                    let of = |scale: f32| scale * (yarn_attention_factor(factor) - 1.0) + 1.0;
                    of(scale) / of(all)
                }
                _ => yarn_attention_factor(factor),
            };
            let beta = |field, absent: f32| -> Result<f32, WeightsError> {
                Ok(rope.float(field)?.filter(|&b| b != 0.0).unwrap_or(absent))
            };
            RopeScaling::Yarn {
                factor,
                beta_fast: beta("beta_fast", 32.0)?,
                beta_slow: beta("beta_slow", 1.0)?,
                original_max_position_embeddings: original,
                truncate: rope.bool("truncate")?.unwrap_or(true),
                attention_factor: given.unwrap_or(by_scales),
            }
        }
        Some("longrope") => {
            let original = original()?;
            let factor = f64::from(factor(original)?);
            let grown = if factor <= 1.0 {
                1.0
            } else {
                (1.0 + factor.ln() / f64::from(original).ln()).sqrt()
            };
            let factors = |field: &str| rope.floats(field)?.ok_or_else(|| rope.missing(field));
            RopeScaling::LongRope {
                short_factor: factors("short_factor")?,
                long_factor: factors("long_factor")?,
                original_max_position_embeddings: original,
                attention_factor: given.unwrap_or(grown as f32),
            }
        }
        Some(other) => {
            return Err(fields.unsupported(
                format!("{name}.rope_type"),
                format!("{other:?}"),
                "default, linear, llama3, yarn, longrope",
            ));
        }
    };
    Ok(RopeParameters {
        theta: rope.float("rope_theta")?.unwrap_or(theta),
        scaling,
    })
}
