//! `SmolLM3`: llama with layers that are not rotated, every fourth.

use super::{Family, no_window_gguf, set_window, whole_heads, whole_heads_gguf};
use crate::config::{Architecture, LayerRope, ModelConfig, RopePairing};
use crate::weights::WeightsError;
use crate::weights::config_hf::{DEFAULTS, Defaults, layer_types, rope};
use crate::weights::fields::Fields;
use crate::weights::keys::Keys;

/// Every so many layers one is not rotated.
const INTERVAL: usize = 4;

pub(super) const SMOLLM3: Family = Family {
    architecture: Architecture::SmolLm3,
    hf_name: "smollm3",
    hf_defaults: Defaults {
        max_position_embeddings: 32768,
        rope_theta: 2e6,
        tie_word_embeddings: true,
        num_key_value_heads: Some(4),
        bos_token_id: Some(128_000),
        eos_token_id: Some(128_001),
        ..DEFAULTS
    },
    hf_fill: smollm3,
    gguf_name: Some("smollm3"),
    // Its converter is llama's, which permutes.
    gguf_pairing: RopePairing::Interleaved,
    gguf_fill: gguf,
};

fn smollm3(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    whole_heads(fields, config)?;
    config.rope = rope(fields, defaults, config)?;
    match fields.counts("no_rope_layers")? {
        // 1 where a layer is rotated.
        Some(rotated) => {
            if rotated.len() < config.num_hidden_layers {
                return Err(WeightsError::malformed(
                    fields.file,
                    "no_rope_layers",
                    format!("{} long", rotated.len()),
                    format!("there are {} layers", config.num_hidden_layers),
                ));
            }
            for (layer, rotated) in config.layers.iter_mut().zip(rotated) {
                if rotated == 0 {
                    layer.rope = LayerRope::None;
                }
            }
        }
        None => {
            let interval = fields.count("no_rope_layer_interval")?;
            unrotated(config, interval.unwrap_or(INTERVAL));
        }
    }
    let window = if fields.bool("use_sliding_window")?.unwrap_or(false) {
        fields.count("sliding_window")?
    } else {
        None
    };
    if !layer_types(fields, config)? {
        for layer in &mut config.layers {
            layer.sliding = window.is_some() && layer.rope == LayerRope::None;
        }
    }
    set_window(config, window);
    Ok(())
}

fn unrotated(config: &mut ModelConfig, interval: usize) {
    for (i, layer) in config.layers.iter_mut().enumerate() {
        if (i + 1).is_multiple_of(interval) {
            layer.rope = LayerRope::None;
        }
    }
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    whole_heads_gguf(keys, config)?;
    unrotated(config, INTERVAL);
    no_window_gguf(keys)
}
