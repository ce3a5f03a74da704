//! Llama, and its kin: Mistral, which adds a window, and Mixtral, which adds experts. GGUF calls all
//! three llama.

use super::{Family, whole_heads, whole_heads_gguf, window_everywhere};
use crate::config::{Architecture, ModelConfig, MoeConfig, RopePairing};
use crate::weights::WeightsError;
use crate::weights::config_gguf::experts;
use crate::weights::config_hf::{DEFAULTS, Defaults, layer_types, rope};
use crate::weights::fields::Fields;
use crate::weights::keys::Keys;

pub(super) const LLAMA: Family = Family {
    architecture: Architecture::Llama,
    hf_name: "llama",
    hf_defaults: DEFAULTS,
    hf_fill: llama,
    gguf_name: Some("llama"),
    gguf_pairing: RopePairing::Interleaved,
    gguf_fill: gguf,
};

pub(super) const MISTRAL: Family = Family {
    architecture: Architecture::Mistral,
    hf_name: "mistral",
    hf_defaults: Defaults {
        max_position_embeddings: 4096 * 32,
        num_key_value_heads: Some(8),
        ..DEFAULTS
    },
    hf_fill: mistral,
    gguf_name: None,
    ..LLAMA
};

pub(super) const MIXTRAL: Family = Family {
    architecture: Architecture::Mixtral,
    hf_name: "mixtral",
    hf_defaults: Defaults {
        rms_norm_eps: 1e-5,
        rope_theta: 1e6,
        ..MISTRAL.hf_defaults
    },
    hf_fill: mixtral,
    gguf_name: None,
    ..LLAMA
};

fn llama(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    whole_heads(fields, config)?;
    config.rope = rope(fields, defaults, config)?;
    Ok(())
}

fn mistral(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    llama(fields, defaults, config)?;
    let window = fields.count_or("sliding_window", Some(4096))?;
    if layer_types(fields, config)? && config.layers.iter().any(|l| l.sliding != window.is_some()) {
        return Err(fields.unsupported(
            "layer_types",
            "of layers that differ",
            "one window for all layers of a mistral model",
        ));
    }
    window_everywhere(config, window);
    Ok(())
}

fn mixtral(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    llama(fields, defaults, config)?;
    window_everywhere(config, fields.count("sliding_window")?);
    config.layers.iter_mut().for_each(|layer| layer.moe = true);
    config.moe = Some(MoeConfig {
        num_experts: fields.count("num_local_experts")?.unwrap_or(8),
        num_experts_per_tok: fields.count("num_experts_per_tok")?.unwrap_or(2),
        moe_intermediate_size: config.intermediate_size,
        // A softmax over the chosen experts' logits is the same.
        norm_topk_prob: true,
    });
    Ok(())
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    whole_heads_gguf(keys, config)?;
    if let Some(window) = keys.count("attention.sliding_window")?.filter(|&n| n > 0) {
        config.architecture = Architecture::Mistral;
        window_everywhere(config, Some(window));
    }
    if keys.count("expert_count")?.is_some_and(|n| n > 0) {
        config.architecture = Architecture::Mixtral;
        experts(keys, config, config.intermediate_size)?;
    }
    Ok(())
}
