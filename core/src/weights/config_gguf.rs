//! From GGUF's keys to a [`ModelConfig`]. Owns the meaning of the keys that all families share; knows
//! no tensor data but the divisors of the rotary frequencies.

use super::WeightsError;
use super::families::{self, yarn_attention_factor};
use super::gguf::{GgmlType, Gguf};
use super::keys::{Keys, keys, tensor};
use super::names::{ROPE_FACTORS, ROPE_FREQS};
use super::source::read_vec;
use super::text_assets::end_of_generation;
use crate::config::{LayerConfig, MAX_LAYERS, ModelConfig, MoeConfig, RopeParameters, RopeScaling};

/// The configuration of a GGUF file.
pub(super) fn model_config(gguf: &Gguf) -> Result<ModelConfig, WeightsError> {
    let keys = keys(gguf)?;
    let family = families::of_gguf(&keys)?;
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
    if let Some(dim) = keys.count("attention.value_length")?
        && dim != head_dim
    {
        return Err(WeightsError::unsupported(
            keys.file(),
            keys.full("attention.value_length"),
            dim,
            format!("the same as the key length, {head_dim}"),
        ));
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
    let rotary_dim = keys.count("rope.dimension_count")?.unwrap_or(head_dim);
    let max_position_embeddings = keys.need_count("context_length")?;
    let mut config = ModelConfig {
        architecture: family.architecture,
        vocab_size,
        hidden_size,
        intermediate_size: keys.need_count("feed_forward_length")?,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads: keys
            .count("attention.head_count_kv")?
            .unwrap_or(num_attention_heads),
        head_dim,
        max_position_embeddings,
        rms_norm_eps: keys
            .float("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| keys.missing(&keys.full("attention.layer_norm_rms_epsilon")))?,
        embedding_scale: 1.0,
        attention_scale: keys
            .float("attention.scale")?
            .filter(|&scale| scale != 0.0)
            .unwrap_or(1.0 / (head_dim as f32).sqrt()),
        layers: vec![LayerConfig::default(); num_hidden_layers.min(MAX_LAYERS)],
        rotary_dim,
        rope: RopeParameters {
            theta: keys.float("rope.freq_base")?.unwrap_or(10_000.0),
            scaling: rope_scaling(&keys, rotary_dim, max_position_embeddings)?,
        },
        // Converters permute the q and k rows of llama's kin, and of nobody else.
        rope_pairing: family.gguf_pairing,
        tie_word_embeddings: tensor(gguf, "output.weight").is_none(),
        qkv_bias: has_bias(&[".attn_q.", ".attn_k.", ".attn_v.", ".attn_qkv."]),
        o_bias: has_bias(&[".attn_output."]),
        mlp_bias: has_bias(&[".ffn_gate.", ".ffn_up.", ".ffn_down."]),
        bos_token_id: keys.token("tokenizer.ggml.bos_token_id", vocab_size)?,
        eos_token_ids: end_of_generation(&keys, vocab_size)?,
        ..ModelConfig::default()
    };
    for (key, neutral) in [
        ("residual_scale", 1.0),
        ("logit_scale", 1.0),
        ("embedding_scale", 1.0),
        ("expert_weights_scale", 1.0),
        ("attention.clamp_kqv", 0.0),
        ("attention.max_alibi_bias", 0.0),
        ("expert_shared_count", 0.0),
        ("expert_group_count", 0.0),
        ("leading_dense_block_count", 0.0),
        ("rope.scaling.yarn_ext_factor", 1.0),
        ("rope.scaling.yarn_log_multiplier", 0.0),
    ] {
        if let Some(found) = keys.float(key)?
            && found != neutral
            && found != 0.0
        {
            let supported = format!("{neutral}, or no such key");
            return Err(WeightsError::unsupported(
                keys.file(),
                keys.full(key),
                found,
                supported,
            ));
        }
    }
    let causal = keys.full("attention.causal");
    if keys.bool(&causal)? == Some(false) {
        return Err(WeightsError::unsupported(
            keys.file(),
            causal,
            false,
            "true",
        ));
    }
    (family.gguf_fill)(&keys, &mut config)?;
    config.check().map_err(|source| WeightsError::Config {
        file: keys.file().to_owned(),
        source,
    })?;
    Ok(config)
}

/// The experts of a file that has them; softmax routing whose weights sum to 1.
pub(super) fn experts(
    keys: &Keys<'_>,
    config: &mut ModelConfig,
    moe_intermediate_size: usize,
) -> Result<(), WeightsError> {
    let num_experts = keys.need_count("expert_count")?;
    if let Some(function) = keys.count("expert_gating_func")?
        && function > 1
    {
        return Err(WeightsError::unsupported(
            keys.file(),
            keys.full("expert_gating_func"),
            function,
            "softmax (1)",
        ));
    }
    config.moe = Some(MoeConfig {
        num_experts,
        num_experts_per_tok: keys.need_count("expert_used_count")?,
        moe_intermediate_size,
        norm_topk_prob: true,
    });
    config.layers.iter_mut().for_each(|layer| layer.moe = true);
    Ok(())
}

fn rope_scaling(
    keys: &Keys<'_>,
    rotary_dim: usize,
    max_position_embeddings: usize,
) -> Result<RopeScaling, WeightsError> {
    let file = keys.file();
    let key = keys.full("rope.scaling.type");
    // `rope.scale_linear` is what older writers used.
    let factor = match keys.float("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.float("rope.scale_linear")?,
    };
    let need_factor = || factor.ok_or_else(|| keys.missing(&keys.full("rope.scaling.factor")));
    let original = match keys.count("rope.scaling.original_context_length")? {
        Some(length) => length,
        None => max_position_embeddings,
    };
    let original_max_position_embeddings = u32::try_from(original).map_err(|_| {
        let key = keys.full("rope.scaling.original_context_length");
        WeightsError::malformed(file, key, original, "it must be below 2^32")
    })?;
    let attention_factor = keys.float("rope.scaling.attn_factor")?;
    let kind = keys.string(&key)?;
    let by_key = match kind {
        None => factor
            .filter(|&f| f != 0.0 && f != 1.0)
            .map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor }),
        Some("none" | "longrope") => RopeScaling::None,
        Some("linear") => RopeScaling::Linear {
            factor: need_factor()?,
        },
        Some("yarn") => {
            let factor = need_factor()?;
            RopeScaling::Yarn {
                factor,
                beta_fast: keys.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: keys.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                original_max_position_embeddings,
                truncate: true,
                attention_factor: match keys.float("rope.scaling.yarn_attn_factor")? {
                    Some(given) => given,
                    None => attention_factor.unwrap_or(1.0) * yarn_attention_factor(factor),
                },
            }
        }
        Some(other) => {
            return Err(WeightsError::unsupported(
                file,
                key,
                format!("{other:?}"),
                "none, linear, yarn, longrope, and the tensor rope_freqs.weight",
            ));
        }
    };
    let by_tensor = match (
        rope_factors(keys, ROPE_FREQS, rotary_dim)?,
        rope_factors(keys, ROPE_FACTORS[0], rotary_dim)?,
        rope_factors(keys, ROPE_FACTORS[1], rotary_dim)?,
    ) {
        (None, None, None) => None,
        (Some(factors), None, None) => Some(RopeScaling::Factors(factors)),
        (None, Some(long_factor), Some(short_factor)) => Some(RopeScaling::LongRope {
            short_factor,
            long_factor,
            original_max_position_embeddings,
            attention_factor: attention_factor.unwrap_or(1.0),
        }),
        _ => {
            return Err(WeightsError::unsupported(
                file,
                ROPE_FACTORS.join(" and "),
                "one without the other, or together with rope_freqs.weight",
                "both of them alone",
            ));
        }
    };
    let scaling = match by_tensor {
        None if kind == Some("longrope") => {
            return Err(WeightsError::MissingTensor {
                file: file.to_owned(),
                tensor: ROPE_FACTORS.join(" and "),
            });
        }
        None => by_key,
        Some(by_tensor) if by_key == RopeScaling::None => by_tensor,
        Some(_) => {
            return Err(WeightsError::unsupported(
                file,
                key,
                "given together with tensors of rotary divisors",
                "one of the two",
            ));
        }
    };
    let scales = matches!(
        scaling,
        RopeScaling::Yarn { .. } | RopeScaling::LongRope { .. }
    );
    if let Some(factor) = attention_factor.filter(|&factor| factor != 1.0 && !scales) {
        return Err(WeightsError::unsupported(
            file,
            keys.full("rope.scaling.attn_factor"),
            factor,
            "1, or yarn or longrope",
        ));
    }
    Ok(scaling)
}

/// A tensor of divisors, one a rotary pair.
fn rope_factors(
    keys: &Keys<'_>,
    name: &str,
    rotary_dim: usize,
) -> Result<Option<Vec<f32>>, WeightsError> {
    let Some(freqs) = tensor(keys.gguf, name) else {
        return Ok(None);
    };
    if freqs.ggml_type.name() != "F32" || freqs.shape != [rotary_dim / 2] {
        return Err(WeightsError::malformed(
            keys.file(),
            format!("tensor {name}"),
            format!("{} of shape {:?}", freqs.ggml_type.name(), freqs.shape),
            format!("it must be F32 of shape [{}]", rotary_dim / 2),
        ));
    }
    let source = &keys.gguf.sources[freqs.source];
    let bytes = read_vec(&**source, freqs.offset, freqs.bytes, name)?;
    let (numbers, _) = bytes.as_chunks::<4>();
    Ok(Some(
        numbers.iter().map(|&b| f32::from_le_bytes(b)).collect(),
    ))
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
