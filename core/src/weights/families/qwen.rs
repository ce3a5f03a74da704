//! Qwen 2 and 2.5 (biases of q, k and v; windows from some layer on), Qwen 3 (norms of query and key
//! heads), and Qwen 3 with experts.

use super::{Family, no_window_gguf, set_window, whole_heads, whole_heads_gguf, window_everywhere};
use crate::config::{Architecture, ModelConfig, MoeConfig, RopePairing};
use crate::weights::WeightsError;
use crate::weights::config_gguf::experts;
use crate::weights::config_hf::{DEFAULTS, Defaults, layer_types, rope};
use crate::weights::fields::Fields;
use crate::weights::keys::Keys;

pub(super) const QWEN2: Family = Family {
    architecture: Architecture::Qwen2,
    hf_name: "qwen2",
    hf_defaults: Defaults {
        max_position_embeddings: 32768,
        num_key_value_heads: Some(32),
        bos_token_id: None,
        eos_token_id: None,
        ..DEFAULTS
    },
    hf_fill: qwen2,
    gguf_name: Some("qwen2"),
    gguf_pairing: RopePairing::Halves,
    gguf_fill: gguf_qwen2,
};

pub(super) const QWEN3: Family = Family {
    architecture: Architecture::Qwen3,
    hf_name: "qwen3",
    hf_defaults: Defaults {
        head_dim: Some(128),
        ..QWEN2.hf_defaults
    },
    hf_fill: qwen3,
    gguf_name: Some("qwen3"),
    gguf_fill: gguf_qwen3,
    ..QWEN2
};

pub(super) const QWEN3_MOE: Family = Family {
    architecture: Architecture::Qwen3Moe,
    hf_name: "qwen3_moe",
    hf_defaults: Defaults {
        num_key_value_heads: Some(4),
        ..QWEN2.hf_defaults
    },
    hf_fill: qwen3_moe,
    gguf_name: Some("qwen3moe"),
    gguf_fill: gguf_qwen3_moe,
    ..QWEN2
};

fn qwen2(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    windows(fields, defaults, config)?;
    // Not a matter of its configuration.
    (config.qkv_bias, config.o_bias) = (true, false);
    Ok(())
}

fn qwen3(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    windows(fields, defaults, config)?;
    config.qk_norm = true;
    Ok(())
}

/// The window, where there is one.
fn window(fields: &Fields<'_>) -> Result<Option<usize>, WeightsError> {
    if fields.bool("use_sliding_window")?.unwrap_or(false) {
        fields.count_or("sliding_window", Some(4096))
    } else {
        Ok(None)
    }
}

/// Rotation, and a window from layer `max_window_layers` on.
fn windows(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    whole_heads(fields, config)?;
    config.rope = rope(fields, defaults, config)?;
    let window = window(fields)?;
    let first = fields.count("max_window_layers")?.unwrap_or(28);
    if !layer_types(fields, config)? {
        for (i, layer) in config.layers.iter_mut().enumerate() {
            layer.sliding = window.is_some() && i >= first;
        }
    }
    set_window(config, window);
    Ok(())
}

fn qwen3_moe(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    whole_heads(fields, config)?;
    config.rope = rope(fields, defaults, config)?;
    config.qk_norm = true;
    window_everywhere(config, window(fields)?);
    // Both names are in use for one number.
    let num_experts = match fields.count("num_experts")? {
        Some(experts) => experts,
        None => fields.count("num_local_experts")?.unwrap_or(128),
    };
    let dense = fields.counts("mlp_only_layers")?.unwrap_or_default();
    let step = fields.count("decoder_sparse_step")?.unwrap_or(1);
    for (i, layer) in config.layers.iter_mut().enumerate() {
        layer.moe = num_experts > 0 && (i + 1).is_multiple_of(step) && !dense.contains(&i);
    }
    if config.layers.iter().any(|layer| layer.moe) {
        config.moe = Some(MoeConfig {
            num_experts,
            num_experts_per_tok: fields.count("num_experts_per_tok")?.unwrap_or(8),
            moe_intermediate_size: fields.count("moe_intermediate_size")?.unwrap_or(768),
            norm_topk_prob: fields.bool("norm_topk_prob")?.unwrap_or(false),
        });
    }
    Ok(())
}

fn gguf_qwen2(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    whole_heads_gguf(keys, config)?;
    no_window_gguf(keys)
}

fn gguf_qwen3(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    config.qk_norm = true;
    gguf_qwen2(keys, config)
}

fn gguf_qwen3_moe(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    gguf_qwen3(keys, config)?;
    experts(keys, config, keys.need_count("expert_feed_forward_length")?)
}
