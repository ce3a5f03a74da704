//! Gemma (scaled embeddings, gains stored less one, GELU), Gemma 2 (soft caps, norms around every
//! sublayer, a window on every other layer) and Gemma 3 (norms of query and key heads instead of
//! caps, windows on five of six layers, which are rotated with a base of their own).

use super::{Family, set_window, whole_heads, whole_heads_gguf};
use crate::config::{
    Activation, Architecture, LayerRope, ModelConfig, RopePairing, RopeParameters, RopeScaling,
};
use crate::weights::WeightsError;
use crate::weights::config_hf::{DEFAULTS, Defaults, layer_types, rope, rope_object, rope_of};
use crate::weights::fields::Fields;
use crate::weights::gguf::Value;
use crate::weights::keys::Keys;

/// Every so many layers of Gemma 3 one sees everything.
const PATTERN: usize = 6;
/// Kinds of layers, as `config.json` has a rotary embedding for each.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];
/// Base of the windowed layers' frequencies, where a file does not say.
const LOCAL_THETA: f32 = 10_000.0;

pub(super) const GEMMA: Family = Family {
    architecture: Architecture::Gemma,
    hf_name: "gemma",
    hf_defaults: Defaults {
        max_position_embeddings: 8192,
        tie_word_embeddings: true,
        head_dim: Some(256),
        num_key_value_heads: Some(16),
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        // The first releases said so and meant the approximation.
        activation_alias: Some("gelu"),
        bos_token_id: Some(2),
        eos_token_id: Some(1),
        ..DEFAULTS
    },
    hf_fill: gemma,
    gguf_name: Some("gemma"),
    gguf_pairing: RopePairing::Halves,
    gguf_fill: gguf_gemma,
};

pub(super) const GEMMA2: Family = Family {
    architecture: Architecture::Gemma2,
    hf_name: "gemma2",
    hf_defaults: Defaults {
        num_key_value_heads: Some(4),
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        activation_alias: None,
        ..GEMMA.hf_defaults
    },
    hf_fill: gemma2,
    gguf_name: Some("gemma2"),
    gguf_fill: gguf_gemma2,
    ..GEMMA
};

pub(super) const GEMMA3: Family = Family {
    architecture: Architecture::Gemma3,
    hf_name: "gemma3_text",
    hf_defaults: Defaults {
        max_position_embeddings: 131_072,
        rope_theta: 1e6,
        ..GEMMA2.hf_defaults
    },
    hf_fill: gemma3,
    gguf_name: Some("gemma3"),
    gguf_fill: gguf_gemma3,
    ..GEMMA
};

/// What all of them are, from whichever file.
fn shared(config: &mut ModelConfig) {
    config.hidden_act = Activation::GeluTanh;
    config.embedding_scale = (config.hidden_size as f32).sqrt();
    config.post_norms = config.architecture != Architecture::Gemma;
    config.qk_norm = config.architecture == Architecture::Gemma3;
}

fn gemma(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    gains(fields, config)?;
    config.rope = rope(fields, defaults, config)?;
    Ok(())
}

fn gains(fields: &Fields<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    let given = config.hidden_act;
    shared(config);
    config.hidden_act = given;
    config.norm_offset = 1.0;
    whole_heads(fields, config)
}

/// Scale of the scores, caps and window of Gemma 2 and 3. In Gemma 3 caps are off where absent.
fn scores(
    fields: &Fields<'_>,
    config: &mut ModelConfig,
    [attention_cap, final_cap]: [Option<f32>; 2],
) -> Result<(), WeightsError> {
    let scalar = fields.float("query_pre_attn_scalar")?.unwrap_or(256.0);
    config.attention_scale = 1.0 / scalar.sqrt();
    let cap = |field, absent| {
        if fields.has(field) {
            fields.float(field)
        } else {
            Ok(absent)
        }
    };
    config.attention_logit_softcapping = cap("attn_logit_softcapping", attention_cap)?;
    config.final_logit_softcapping = cap("final_logit_softcapping", final_cap)?;
    let window = fields.count_or("sliding_window", Some(4096))?;
    set_window(config, window);
    Ok(())
}

fn gemma2(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    gemma(fields, defaults, config)?;
    if !layer_types(fields, config)? {
        alternate(config, 2);
    }
    scores(fields, config, [Some(50.0), Some(30.0)])
}

fn gemma3(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    gains(fields, config)?;
    let mut pattern = PATTERN;
    for field in ["sliding_window_pattern", "_sliding_window_pattern"] {
        pattern = fields.count(field)?.unwrap_or(pattern);
    }
    if !layer_types(fields, config)? {
        alternate(config, pattern);
    }
    rotate_by_kind(config);
    if let ("rope_parameters", Some(by_kind)) = rope_object(fields)?
        && !by_kind.object.is_empty()
        && !KINDS.iter().any(|kind| by_kind.has(kind))
    {
        return Err(fields.unsupported(
            "rope_parameters",
            "one for all layers",
            format!("one for each kind of layer: {}", KINDS.join(", ")),
        ));
    }
    let theta = fields.float("rope_theta")?.unwrap_or(defaults.rope_theta);
    let local = fields.float("rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
    let of = |kind: &str, theta| match rope_object(fields)? {
        // Nested: an object for each kind of layer.
        ("rope_parameters", Some(by_kind)) => match by_kind.inner(kind)? {
            Some(inner) => rope_of(
                fields,
                &format!("rope_parameters.{kind}"),
                &inner,
                theta,
                defaults,
                config,
            ),
            None => Ok(plain(theta)),
        },
        // The form of the Hub corrects the layers that see everything alone.
        (name, Some(inner)) if kind == KINDS[0] => {
            rope_of(fields, name, &inner, theta, defaults, config)
        }
        _ => Ok(plain(theta)),
    };
    let (global, local) = (of(KINDS[0], theta)?, of(KINDS[1], local)?);
    config.rope = global;
    config.rope_local = Some(local);
    scores(fields, config, [None; 2])
}

fn plain(theta: f32) -> RopeParameters {
    RopeParameters {
        theta,
        scaling: RopeScaling::None,
    }
}

/// Every layer has a window, but each `pattern`-th.
fn alternate(config: &mut ModelConfig, pattern: usize) {
    for (i, layer) in config.layers.iter_mut().enumerate() {
        layer.sliding = !(i + 1).is_multiple_of(pattern);
    }
}

/// Layers with a window are rotated by the local base.
fn rotate_by_kind(config: &mut ModelConfig) {
    for layer in &mut config.layers {
        layer.rope = if layer.sliding {
            LayerRope::Local
        } else {
            LayerRope::Global
        };
    }
}

fn gguf_gemma(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    shared(config);
    whole_heads_gguf(keys, config)
}

/// The largest of each family scales its scores by hidden size / heads; files do not say.
fn gguf_scale(config: &mut ModelConfig, layers_of_largest: usize) {
    if config.num_hidden_layers == layers_of_largest {
        let width = config.hidden_size as f32 / config.num_attention_heads as f32;
        config.attention_scale = 1.0 / width.sqrt();
    }
}

fn gguf_gemma2(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    gguf_gemma(keys, config)?;
    gguf_scale(config, 46);
    config.attention_logit_softcapping =
        Some(keys.float("attn_logit_softcapping")?.unwrap_or(50.0));
    config.final_logit_softcapping = Some(keys.float("final_logit_softcapping")?.unwrap_or(30.0));
    alternate(config, 2);
    let window = keys.count("attention.sliding_window")?.unwrap_or(4096);
    set_window(config, Some(window));
    Ok(())
}

/// Layers with a window: a list, or every layer but each so-many-th.
fn gguf_pattern(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    const KEY: &str = "attention.sliding_window_pattern";
    let Some(sliding) = keys.get(&keys.full(KEY)).and_then(Value::as_bools) else {
        alternate(config, keys.count(KEY)?.unwrap_or(PATTERN));
        return Ok(());
    };
    if sliding.len() != config.num_hidden_layers {
        return Err(WeightsError::malformed(
            keys.file(),
            keys.full(KEY),
            format!("{} long", sliding.len()),
            format!("there are {} layers", config.num_hidden_layers),
        ));
    }
    for (layer, &sliding) in config.layers.iter_mut().zip(sliding) {
        layer.sliding = sliding;
    }
    Ok(())
}

fn gguf_gemma3(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    gguf_gemma(keys, config)?;
    gguf_scale(config, 62);
    config.final_logit_softcapping = keys
        .float("final_logit_softcapping")?
        .filter(|&cap| cap != 0.0);
    let window = keys.count("attention.sliding_window")?.filter(|&n| n > 0);
    if window.is_some() {
        gguf_pattern(keys, config)?;
        rotate_by_kind(config);
        let theta = keys.float("rope.freq_base_swa")?.unwrap_or(LOCAL_THETA);
        config.rope_local = Some(plain(theta));
    }
    if keys.float("rope.freq_base")?.is_none() {
        config.rope.theta = GEMMA3.hf_defaults.rope_theta;
    }
    set_window(config, window);
    Ok(())
}
