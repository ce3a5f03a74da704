//! Models by name, and from files, as the cost model sees them. Loads no weights.

use std::path::Path;

use anyhow::{Context, bail};
use twoclock_core::config::{LayerConfig, ModelConfig};
use twoclock_core::sched::ModelShape;
use twoclock_core::weights::model_config_of_json;
use twoclock_core::weights::repack::tensor_bytes;

use crate::models::Models;
use crate::text_input::read_text;

/// Names of models.
pub const NAMES: [&str; 3] = ["llama-3-8b", "llama-3-70b", "opt-13b"];

/// What a `config.json` needs at least.
pub const EXAMPLE: &str = r#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
   "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
   "num_key_value_heads": 8}"#;

/// A model to simulate.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its numbers.
    pub shape: ModelShape,
    /// Longest sequence it was made for.
    pub max_model_len: usize,
}

/// Bits of a number, as asked for.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    /// Of a weight; `None` is the file's own, and 16 where there is none.
    pub weight: Option<f64>,
    /// Of a key or value.
    pub kv: f64,
}

fn llama(hidden: usize, intermediate: usize, layers: usize, heads: usize) -> ModelConfig {
    ModelConfig {
        vocab_size: 128_256,
        hidden_size: hidden,
        intermediate_size: intermediate,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: 8,
        head_dim: 128,
        max_position_embeddings: 8192,
        layers: vec![LayerConfig::default(); layers],
        ..ModelConfig::default()
    }
}

/// OPT has two matrices where Llama has three, so its parameters are counted here.
fn opt_13b() -> (ModelConfig, u64) {
    let config = ModelConfig {
        vocab_size: 50_272,
        hidden_size: 5120,
        intermediate_size: 20_480,
        num_hidden_layers: 40,
        num_attention_heads: 40,
        num_key_value_heads: 40,
        head_dim: 128,
        max_position_embeddings: 2048,
        layers: vec![LayerConfig::default(); 40],
        tie_word_embeddings: true,
        ..ModelConfig::default()
    };
    (config, 40 * (4 * 5120 * 5120 + 2 * 5120 * 20_480))
}

/// A model by its name here.
pub fn builtin(name: &str, bits: Bits) -> Option<Model> {
    let (config, dense_params) = match name {
        "llama-3-8b" => (llama(4096, 14_336, 32, 32), None),
        "llama-3-70b" => (llama(8192, 28_672, 80, 64), None),
        "opt-13b" => {
            let (config, dense_params) = opt_13b();
            (config, Some(dense_params))
        }
        _ => return None,
    };
    let mut model = Model::new(&config, None, bits);
    if let Some(dense_params) = dense_params {
        model.shape.dense_params = dense_params;
    }
    Some(model)
}

/// A model by name; by a `config.json` alone; or as everywhere else.
///
/// # Errors
/// No such model, or files that are none.
pub fn find(reference: &str, bits: Bits, models: &Models<'_>) -> anyhow::Result<Model> {
    if let Some(model) = builtin(reference, bits) {
        return Ok(model);
    }
    if reference.ends_with(".json") {
        let text = read_text(Path::new(reference))?;
        return of_json(&text, bits).with_context(|| format!("{reference} describes no model"));
    }
    let names = NAMES.join(", ");
    let checkpoint = models
        .find(reference)
        .and_then(|path| Ok(path.open()?))
        .with_context(|| format!("{reference:?} is no model by name ({names})"))?;
    let bytes = checkpoint.tensors.values().map(tensor_bytes).sum::<u64>();
    if bytes == 0 {
        bail!("{reference} has no weights");
    }
    Ok(Model::new(&checkpoint.config, Some(bytes), bits))
}

fn of_json(text: &str, bits: Bits) -> anyhow::Result<Model> {
    let json = serde_json::from_str(text).context("it is no JSON")?;
    Ok(Model::new(&model_config_of_json(&json)?, None, bits))
}

impl Model {
    fn new(config: &ModelConfig, weight_bytes: Option<u64>, bits: Bits) -> Self {
        let mut shape = ModelShape::new(config, weight_bytes.unwrap_or(0), bits.kv / 8.0);
        if bits.weight.is_some() || weight_bytes.is_none() {
            shape.bytes_per_param = bits.weight.unwrap_or(16.0) / 8.0;
        }
        Self {
            shape,
            max_model_len: config.max_position_embeddings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_the_model_of_that_name() {
        let bits = Bits {
            weight: None,
            kv: 16.0,
        };
        let read = of_json(EXAMPLE, bits).unwrap();
        let named = builtin("llama-3-8b", bits).unwrap();
        assert_eq!(read.shape.num_params(), named.shape.num_params());
        assert!(of_json("{", bits).is_err() && of_json("{}", bits).is_err());
    }

    #[test]
    fn opt_takes_what_its_paper_says() {
        let (config, dense_params) = opt_13b();
        let mut shape = ModelShape::new(&config, 0, 2.0);
        shape.dense_params = dense_params;
        // 12.85 billion, and 800 KB a token (PagedAttention, section 3).
        assert!((shape.num_params() as f64 / 12.84e9 - 1.0).abs() < 0.002);
        assert_eq!(shape.kv_bytes_per_token(), 819_200.0);
        let large = ModelShape::new(&llama(8192, 28_672, 80, 64), 0, 2.0);
        assert!((large.num_params() as f64 / 70.55e9 - 1.0).abs() < 0.002);
    }
}
