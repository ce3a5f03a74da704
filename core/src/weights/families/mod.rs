//! What the families of models add to the fields and keys that all share: one file a family, with
//! its differences for `config.json` and for GGUF side by side. Knows no tensor data.

mod gemma;
mod llama;
mod phi;
mod qwen;
mod smollm;

use super::WeightsError;
use super::config_hf::{Defaults, rotary_dim};
use super::fields::Fields;
use super::keys::Keys;
use crate::config::{Architecture, ModelConfig, RopePairing};

/// One family.
pub(super) struct Family {
    pub(super) architecture: Architecture,
    /// `model_type` of `config.json`.
    pub(super) hf_name: &'static str,
    /// Its values of absent fields.
    pub(super) hf_defaults: Defaults,
    /// Its differences.
    pub(super) hf_fill: fn(&Fields<'_>, &Defaults, &mut ModelConfig) -> Result<(), WeightsError>,
    /// `general.architecture` of GGUF; `None` where such files are another family's.
    pub(super) gguf_name: Option<&'static str>,
    /// How the converter left the rotary pairs.
    pub(super) gguf_pairing: RopePairing,
    /// Its differences.
    pub(super) gguf_fill: fn(&Keys<'_>, &mut ModelConfig) -> Result<(), WeightsError>,
}

const FAMILIES: [Family; 11] = [
    llama::LLAMA,
    llama::MISTRAL,
    llama::MIXTRAL,
    qwen::QWEN2,
    qwen::QWEN3,
    qwen::QWEN3_MOE,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    phi::PHI3,
    smollm::SMOLLM3,
];

/// The family of a `config.json`.
pub(super) fn of_hf(fields: &Fields<'_>) -> Result<&'static Family, WeightsError> {
    const FIELD: &str = "model_type";
    let name = fields.string(FIELD)?.ok_or_else(|| fields.missing(FIELD))?;
    FAMILIES
        .iter()
        .find(|family| family.hf_name == name)
        .ok_or_else(|| {
            let names = FAMILIES.iter().map(|family| family.hf_name);
            fields.unsupported(FIELD, format!("{name:?}"), list(names))
        })
}

/// The family of a GGUF file.
pub(super) fn of_gguf(keys: &Keys<'_>) -> Result<&'static Family, WeightsError> {
    FAMILIES
        .iter()
        .find(|family| family.gguf_name == Some(keys.architecture))
        .ok_or_else(|| {
            WeightsError::unsupported(
                keys.file(),
                "general.architecture",
                format!("{:?}", keys.architecture),
                list(FAMILIES.iter().filter_map(|family| family.gguf_name)),
            )
        })
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// `YaRN`'s scale of cos and sin for a context grown by `factor` (arXiv:2309.00071, section 3.4).
pub(super) fn yarn_attention_factor(factor: f32) -> f32 {
    if factor <= 1.0 {
        1.0
    } else {
        (0.1 * f64::from(factor).ln() + 1.0) as f32
    }
}

/// A window on the layers that are marked as sliding. One that no sequence outgrows is none.
fn set_window(config: &mut ModelConfig, window: Option<usize>) {
    config.sliding_window = window.filter(|&window| window < config.max_position_embeddings);
    if window.is_some() && config.sliding_window.is_none() {
        config.layers.iter_mut().for_each(|l| l.sliding = false);
    }
}

/// A window on every layer, or on none.
fn window_everywhere(config: &mut ModelConfig, window: Option<usize>) {
    let sliding = window.is_some();
    config.layers.iter_mut().for_each(|l| l.sliding = sliding);
    set_window(config, window);
}

/// That heads are rotated whole.
fn whole_heads(fields: &Fields<'_>, config: &ModelConfig) -> Result<(), WeightsError> {
    if rotary_dim(fields, config)? == config.head_dim {
        return Ok(());
    }
    Err(fields.unsupported(
        "partial_rotary_factor",
        "below 1",
        "1 (whole heads are rotated) in this family",
    ))
}

/// That a GGUF file rotates whole heads.
fn whole_heads_gguf(keys: &Keys<'_>, config: &ModelConfig) -> Result<(), WeightsError> {
    if config.rotary_dim == config.head_dim {
        return Ok(());
    }
    Err(WeightsError::unsupported(
        keys.file(),
        keys.full("rope.dimension_count"),
        config.rotary_dim,
        format!("the width of a head, {}", config.head_dim),
    ))
}

/// That a GGUF file has no window, in a family whose converter writes none.
fn no_window_gguf(keys: &Keys<'_>) -> Result<(), WeightsError> {
    const KEY: &str = "attention.sliding_window";
    match keys.count(KEY)? {
        None | Some(0) => Ok(()),
        Some(window) => Err(WeightsError::unsupported(
            keys.file(),
            keys.full(KEY),
            window,
            "0, or no such key, in this family",
        )),
    }
}
