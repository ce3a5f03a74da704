//! A model as the cost model sees it: what every token multiplies, what a step reads, what a token
//! leaves in the cache. Knows no weights and no device.

use super::kv_group::KvGroupSpec;
use crate::config::ModelConfig;

/// Experts of a model, over all its layers that have any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertShape {
    /// Parameters of one expert of every layer.
    pub params: u64,
    /// Experts a layer.
    pub num_experts: usize,
    /// Experts a token goes to.
    pub num_experts_per_tok: usize,
}

/// Layers that keep their keys and values alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGroupShape {
    /// How many.
    pub num_layers: usize,
    /// Tokens a query sees; `None` for all before it.
    pub window: Option<usize>,
}

/// The numbers of a model that decide what a step moves and multiplies.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Query heads a layer.
    pub num_attention_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Parameters that every token is multiplied by, the head apart.
    pub dense_params: u64,
    /// Experts, of which a token meets some.
    pub experts: Option<ExpertShape>,
    /// Parameters of the output projection, multiplied for rows that want logits.
    pub head_params: u64,
    /// Parameters of the embedding table where it is not the output projection.
    pub embedding_params: u64,
    /// Bytes a parameter takes on the device, on average.
    pub bytes_per_param: f64,
    /// Bytes the keys and values of a token take in one layer.
    pub kv_bytes_per_layer: f64,
    /// The layers, by what their queries see.
    pub groups: Vec<KvGroupShape>,
    /// Dispatches of a step.
    pub num_dispatches: usize,
}

/// Dispatches of a layer and of what stands around the layers.
const DISPATCHES_PER_LAYER: usize = 6;
const DISPATCHES_AROUND: usize = 4;

impl ModelShape {
    /// That of a model whose weights take `weight_bytes` on the device in all, and whose cache takes
    /// `kv_bytes` a number.
    pub fn new(config: &ModelConfig, weight_bytes: u64, kv_bytes: f64) -> Self {
        let [hidden, heads, kv_heads, head_dim, vocab] = [
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.vocab_size,
        ]
        .map(|n| n as u64);
        let mut dense_params = 0;
        let mut expert_layers = 0;
        for layer in 0..config.layers.len() {
            dense_params += 2 * hidden * (heads + kv_heads) * head_dim;
            match config.experts(layer) {
                None => dense_params += 3 * hidden * config.intermediate_size as u64,
                Some(moe) => {
                    dense_params += hidden * moe.num_experts as u64;
                    expert_layers += 1;
                }
            }
        }
        let experts = config
            .moe
            .filter(|_| expert_layers > 0)
            .map(|moe| ExpertShape {
                params: 3 * hidden * moe.moe_intermediate_size as u64 * expert_layers,
                num_experts: moe.num_experts,
                num_experts_per_tok: moe.num_experts_per_tok,
            });
        let groups = KvGroupSpec::of(config)
            .into_iter()
            .map(|group| KvGroupShape {
                num_layers: group.layers.len(),
                window: group.window,
            });
        let mut shape = Self {
            hidden_size: config.hidden_size,
            num_attention_heads: config.num_attention_heads,
            head_dim: config.head_dim,
            dense_params,
            experts,
            head_params: hidden * vocab,
            embedding_params: if config.tie_word_embeddings {
                0
            } else {
                hidden * vocab
            },
            bytes_per_param: 1.0,
            kv_bytes_per_layer: 2.0 * (kv_heads * head_dim) as f64 * kv_bytes,
            groups: groups.collect(),
            num_dispatches: config.layers.len() * DISPATCHES_PER_LAYER + DISPATCHES_AROUND,
        };
        shape.bytes_per_param = weight_bytes as f64 / shape.num_params() as f64;
        shape
    }

    /// All parameters.
    pub fn num_params(&self) -> u64 {
        let experts = self.experts.map_or(0, |e| e.params * e.num_experts as u64);
        self.dense_params + experts + self.head_params + self.embedding_params
    }

    /// Bytes all weights take on the device.
    pub fn weight_bytes(&self) -> f64 {
        self.num_params() as f64 * self.bytes_per_param
    }

    /// Decoder layers.
    pub fn num_layers(&self) -> usize {
        self.groups.iter().map(|group| group.num_layers).sum()
    }

    /// Bytes a token takes in the cache, in all layers that see it.
    pub fn kv_bytes_per_token(&self) -> f64 {
        self.kv_bytes_per_layer * self.num_layers() as f64
    }

    /// Parameters of the layers that a step of so many tokens reads: of experts those that it is
    /// expected to choose, if every expert is as likely as the next.
    pub(super) fn params_read(&self, num_tokens: usize) -> f64 {
        let experts = self.experts.map_or(0.0, |e| {
            let missed = 1.0 - e.num_experts_per_tok as f64 / e.num_experts as f64;
            let chosen = 1.0 - missed.powf(num_tokens as f64);
            e.params as f64 * e.num_experts as f64 * chosen
        });
        self.dense_params as f64 + experts
    }

    /// Parameters of the layers that one token is multiplied by.
    pub(super) fn params_per_token(&self) -> f64 {
        let experts = self
            .experts
            .map_or(0, |e| e.params * e.num_experts_per_tok as u64);
        (self.dense_params + experts) as f64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::{LayerConfig, MoeConfig};

    /// Llama 3 8B.
    pub(in crate::sched) fn llama_8b() -> ModelConfig {
        ModelConfig {
            vocab_size: 128_256,
            hidden_size: 4096,
            intermediate_size: 14336,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: 8,
            head_dim: 128,
            layers: vec![LayerConfig::default(); 32],
            ..ModelConfig::default()
        }
    }

    #[test]
    fn parameters_are_counted_as_published() {
        let shape = ModelShape::new(&llama_8b(), 16_060_000_000, 2.0);
        // 8.03 billion, of which the norms are not matrices.
        assert_eq!(shape.num_params(), 8_029_995_008);
        assert!((shape.bytes_per_param - 2.0).abs() < 0.001);
        assert_eq!(shape.kv_bytes_per_token(), 131_072.0);
        assert_eq!(shape.num_layers(), 32);
    }

    #[test]
    fn of_experts_a_step_reads_those_it_chooses() {
        let mut config = llama_8b();
        config.moe = Some(MoeConfig {
            num_experts: 8,
            num_experts_per_tok: 2,
            moe_intermediate_size: 14336,
            norm_topk_prob: true,
        });
        config.layers.iter_mut().for_each(|layer| layer.moe = true);
        let shape = ModelShape::new(&config, 93_000_000_000, 2.0);
        let expert = shape.experts.unwrap().params as f64;
        let read = |n| (shape.params_read(n) - shape.dense_params as f64) / expert;
        assert!((read(1) - 2.0).abs() < 1e-6);
        assert!(read(4) > 5.0 && read(64) > 7.99 && read(64) < 8.0);
        let per_token = shape.params_per_token() - shape.dense_params as f64;
        assert_eq!(per_token, 2.0 * expert);
    }
}
