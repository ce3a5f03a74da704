//! Shapes of published models by name, and from files, for what needs no weights of them, and models of
//! random weights.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use twoclock_core::config::ModelConfig;
use twoclock_core::weights::names::is_router;
use twoclock_core::weights::{Checkpoint, DType, WeightsError, model_config_of_json};

use crate::text_input::read_text;

/// Names of shapes.
pub const NAMES: [&str; 2] = ["llama-3-8b", "qwen3-4b"];

/// The fields of a `config.json` that say a shape.
fn named(name: &str) -> Option<Value> {
    match name {
        "llama-3-8b" => Some(json!({
            "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096,
            "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
        })),
        "qwen3-4b" => Some(json!({
            "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 2560,
            "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960,
            "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "tie_word_embeddings": true,
        })),
        _ => None,
    }
}

/// A shape by its name here, or by a `config.json`.
///
/// # Errors
/// Neither a name nor a file that can be read; a file that describes no model.
pub fn find(reference: &str) -> anyhow::Result<ModelConfig> {
    let json = match named(reference) {
        Some(json) => json,
        None => {
            let path = Path::new(reference);
            if !path.exists() {
                bail!(
                    "{reference:?} is neither the name of a shape ({}) nor a file",
                    NAMES.join(", ")
                );
            }
            serde_json::from_str(&read_text(path)?)
                .with_context(|| format!("{reference} is no JSON"))?
        }
    };
    model_config_of_json(&json).with_context(|| format!("{reference} describes no model"))
}

/// Random weights of a shape, in a type by GGUF's name.
///
/// # Errors
/// No such shape or type.
pub fn dummy(shape: &str, format: &str) -> anyhow::Result<Checkpoint> {
    let mut dtypes = DType::ALL.into_iter();
    let dtype = dtypes.find(|dtype| dtype.name().eq_ignore_ascii_case(format));
    let dtype = dtype.with_context(|| {
        let names = DType::ALL.map(|dtype| dtype.name().to_lowercase());
        format!(
            "there are no weights in {format:?}, but in {}",
            names.join(", ")
        )
    })?;
    Ok(random(find(shape)?, shape, dtype)?)
}

/// Random weights of one type; routers of experts in singles, as files have them.
///
/// # Errors
/// A shape that cannot be.
pub fn random(config: ModelConfig, name: &str, dtype: DType) -> Result<Checkpoint, WeightsError> {
    Checkpoint::dummy(config, name, |tensor| match is_router(tensor) {
        true => DType::F32,
        false => dtype,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use twoclock_core::sched::ModelShape;

    #[test]
    fn shapes_have_the_parameters_their_models_have() {
        for (name, billions) in [("llama-3-8b", 8.03), ("qwen3-4b", 4.02)] {
            let shape = ModelShape::new(&find(name).unwrap(), 0, 2.0);
            let params = shape.num_params() as f64 / 1e9;
            assert!((params / billions - 1.0).abs() < 0.002, "{name}: {params}");
        }
        assert!(
            find("llama-4")
                .unwrap_err()
                .to_string()
                .contains("qwen3-4b")
        );
    }
}
