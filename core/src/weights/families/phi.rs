//! Phi-3, 3.5 and Phi-4-mini: q, k and v stored as one tensor, gate and up as another; `LongRoPE`;
//! partial rotation in Phi-4-mini.

use super::{Family, window_everywhere};
use crate::config::{Architecture, ModelConfig, RopePairing, RopeParameters, RopeScaling};
use crate::weights::WeightsError;
use crate::weights::config_hf::{DEFAULTS, Defaults, rope, rotary_dim};
use crate::weights::fields::Fields;
use crate::weights::keys::Keys;

pub(super) const PHI3: Family = Family {
    architecture: Architecture::Phi3,
    hf_name: "phi3",
    hf_defaults: Defaults {
        max_position_embeddings: 4096,
        original_max_position_embeddings: Some(4096),
        rms_norm_eps: 1e-5,
        eos_token_id: Some(32_000),
        // Its repositories knew the kind by these names first.
        longrope_aliases: &["su", "yarn"],
        ..DEFAULTS
    },
    hf_fill: phi3,
    gguf_name: Some("phi3"),
    gguf_pairing: RopePairing::Halves,
    gguf_fill: gguf,
};

fn phi3(
    fields: &Fields<'_>,
    defaults: &Defaults,
    config: &mut ModelConfig,
) -> Result<(), WeightsError> {
    config.rotary_dim = rotary_dim(fields, config)?;
    config.rope = rope(fields, defaults, config)?;
    if !matches!(
        config.rope,
        RopeParameters {
            scaling: RopeScaling::None | RopeScaling::LongRope { .. },
            ..
        }
    ) {
        return Err(fields.unsupported(
            "rope_scaling",
            "of another kind",
            "default, longrope in a phi3 model",
        ));
    }
    window_everywhere(config, fields.count("sliding_window")?);
    Ok(())
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), WeightsError> {
    let window = keys.count("attention.sliding_window")?.filter(|&n| n > 0);
    window_everywhere(config, window);
    Ok(())
}
