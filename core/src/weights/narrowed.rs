//! Small models of random weights that ask a device for the kernels of a large one: the same types of
//! tensors, heads, norms, windows and experts, and a layer of each kind, or layers of each kind behind each that
//! they follow; as wide as the large one, or as narrow as it can be.

use super::checkpoint::Checkpoint;
use super::names::expected_tensors;
use super::{DType, WeightsError};
use crate::config::{LayerConfig, ModelConfig};
use std::collections::HashMap;

/// Elements that a block of the largest types has.
const BLOCK: usize = 256;
/// Rows of the vocabulary: enough for the sampler's candidates to be several.
const VOCABULARY: usize = 1500;
/// Rows of the vocabulary where widths stay: as many as have kernels of very many rows.
const WIDE_VOCABULARY: usize = 16 << 10;
/// Tokens a window shows, so that short contexts reach beyond it.
const WINDOW: usize = 40;

/// A width that divides into blocks as `width` does, of a block and a bit.
fn narrow(width: usize) -> usize {
    width.min(BLOCK + gcd(width, BLOCK))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Key/value heads: as few as leave the width of attention dividing into blocks as it did.
fn narrow_heads(config: &ModelConfig) -> (usize, usize) {
    let group = config.num_attention_heads / config.num_key_value_heads;
    let width = |kv: usize| kv * group * config.head_dim;
    let asked = gcd(width(config.num_key_value_heads), BLOCK);
    let kv = (1..config.num_key_value_heads).find(|&kv| width(kv).is_multiple_of(asked));
    let kv = kv.unwrap_or(config.num_key_value_heads);
    (kv * group, kv)
}

/// Which layers are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// One of each kind.
    Kinds,
    /// Each kind behind each that it follows in the whole model, as a layer's kernels may depend on the one
    /// before it; the first and the last are of the whole's kinds.
    Neighbours,
}

/// What makes a layer's kernels its own: its differences, and the types of its tensors.
type Kind = (LayerConfig, Vec<(String, DType)>);

impl Checkpoint {
    fn kind(&self, layer: usize) -> Kind {
        let prefix = format!("model.layers.{layer}.");
        let tensors = self.tensors.range(prefix.clone()..);
        let tensors = tensors.take_while(|(name, _)| name.starts_with(&prefix));
        let dtypes = tensors.map(|(name, tensor)| {
            let part = &name[prefix.len()..];
            // All experts of a layer are stacked.
            let part = match part.split_once("experts.") {
                Some((before, after)) => {
                    let (_, projection) = after.split_once('.').unwrap_or(("", after));
                    format!("{before}experts.{projection}")
                }
                None => part.to_owned(),
            };
            (part, tensor.loaded_dtype())
        });
        let mut dtypes: Vec<_> = dtypes.collect();
        dtypes.sort_unstable();
        dtypes.dedup();
        (self.config.layers[layer], dtypes)
    }

    /// A model of random weights that asks for the kernels of this one, and is small.
    ///
    /// # Errors
    /// A shape that cannot be made smaller.
    pub fn narrowed(&self, layers: Layers) -> Result<Self, WeightsError> {
        let whole = &self.config;
        let (num_attention_heads, num_key_value_heads) = narrow_heads(whole);
        let mut config = ModelConfig {
            vocab_size: whole.vocab_size.min(VOCABULARY),
            hidden_size: narrow(whole.hidden_size),
            intermediate_size: narrow(whole.intermediate_size),
            num_attention_heads,
            num_key_value_heads,
            sliding_window: whole.sliding_window.map(|window| window.min(WINDOW)),
            ..whole.clone()
        };
        if let Some(moe) = &mut config.moe {
            moe.moe_intermediate_size = narrow(moe.moe_intermediate_size);
            // All are chosen: then short steps fill the tiles that long ones of the large model do.
            moe.num_experts = moe.num_experts_per_tok;
        }
        let layers = match layers {
            Layers::Kinds => self.kinds(),
            Layers::Neighbours => self.neighbours(),
        };
        self.of_layers(&layers, config, "narrowed")
    }

    /// A model of random weights as wide as this one, with its [neighbours](Layers::Neighbours) and a part of the
    /// vocabulary.
    ///
    /// # Errors
    /// A shape that cannot be.
    pub fn excerpt(&self) -> Result<Self, WeightsError> {
        let config = ModelConfig {
            vocab_size: self.config.vocab_size.min(WIDE_VOCABULARY),
            ..self.config.clone()
        };
        self.of_layers(&self.neighbours(), config, "an excerpt")
    }

    /// As [`Layers::Kinds`].
    fn kinds(&self) -> Vec<usize> {
        let mut kinds: Vec<(Kind, usize)> = Vec::new();
        for layer in 0..self.config.layers.len() {
            let kind = self.kind(layer);
            if kinds.iter().all(|(other, _)| *other != kind) {
                kinds.push((kind, layer));
            }
        }
        kinds.into_iter().map(|(_, layer)| layer).collect()
    }

    /// As [`Layers::Neighbours`].
    fn neighbours(&self) -> Vec<usize> {
        let kinds: Vec<Kind> = (0..self.config.layers.len())
            .map(|layer| self.kind(layer))
            .collect();
        let mut layers: Vec<usize> = (0..kinds.len().min(1)).collect();
        let mut seen: Vec<(&Kind, &Kind)> = Vec::new();
        for (second, pair) in (1..).zip(kinds.windows(2)) {
            let pair = (&pair[0], &pair[1]);
            if seen.contains(&pair) {
                continue;
            }
            seen.push(pair);
            let follows = layers.last().is_some_and(|&last| kinds[last] == *pair.0);
            layers.extend((!follows).then_some(second - 1).into_iter().chain([second]));
        }
        let ends = |layer: &usize| Some(&kinds[*layer]) == kinds.last();
        if !layers.last().is_some_and(ends) {
            layers.extend(kinds.len().checked_sub(1));
        }
        layers
    }

    fn of_layers(
        &self,
        layers: &[usize],
        config: ModelConfig,
        what: &str,
    ) -> Result<Self, WeightsError> {
        let whole = &self.config;
        let config = ModelConfig {
            num_hidden_layers: layers.len(),
            layers: layers.iter().map(|&layer| whole.layers[layer]).collect(),
            bos_token_id: None,
            eos_token_ids: Vec::new(),
            ..config
        };
        // By the narrow model's names, those of the layers they are taken of.
        let mut dtypes = HashMap::new();
        for (name, _) in expected_tensors(&config) {
            let of = match name.strip_prefix("model.layers.") {
                None => name.clone(),
                Some(rest) => {
                    let (layer, rest) = rest.split_once('.').unwrap_or((rest, ""));
                    let layer: usize = layer.parse().unwrap_or(0);
                    format!("model.layers.{}.{rest}", layers[layer])
                }
            };
            dtypes.insert(name, self.tensor(&of)?.loaded_dtype());
        }
        let name = self.metadata.name.as_deref().unwrap_or("model");
        Self::dummy(config, &format!("{name}, {what}"), |tensor| {
            dtypes.get(tensor).copied().unwrap_or(DType::F32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::model_config_of_json;

    #[test]
    fn layers_of_each_kind_are_left_with_their_types() {
        let json = serde_json::json!({
            "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096,
            "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8,
        });
        let config = model_config_of_json(&json).expect("a shape");
        // As files of mixed types have it: the lower layers' down projections in more bits.
        let down = |layer: usize| format!("model.layers.{layer}.mlp.down_proj.weight");
        let more: Vec<String> = (0..4).map(down).collect();
        let whole = Checkpoint::dummy(config, "whole", |name| match () {
            () if name == "lm_head.weight" || more.iter().any(|m| m == name) => DType::Q6K,
            () => DType::Q4K,
        });
        let narrow = whole
            .expect("a model")
            .narrowed(Layers::Neighbours)
            .expect("a smaller one");
        let config = &narrow.config;
        // Both kinds behind themselves, and one behind the other.
        assert_eq!(config.num_hidden_layers, 4);
        assert_eq!((config.hidden_size, config.intermediate_size), (512, 512));
        // Groups of 4 heads of 128 are whole blocks.
        assert_eq!(
            (config.num_attention_heads, config.num_key_value_heads),
            (4, 1)
        );
        for (name, dtype) in [
            (down(0), DType::Q6K),
            (down(1), DType::Q6K),
            (down(2), DType::Q4K),
            (down(3), DType::Q4K),
            ("lm_head.weight".to_owned(), DType::Q6K),
            ("model.embed_tokens.weight".to_owned(), DType::Q4K),
        ] {
            assert_eq!(
                narrow.tensor(&name).expect("it is there").dtype,
                dtype,
                "{name}"
            );
        }
    }

    #[test]
    fn narrow_widths_divide_as_wide_ones() {
        for (wide, expected) in [
            (576, 320),
            (4096, 512),
            (640, 384),
            (2560, 512),
            (1536, 512),
            (896, 384),
            (64, 64),
        ] {
            assert_eq!(narrow(wide), expected);
        }
    }
}
