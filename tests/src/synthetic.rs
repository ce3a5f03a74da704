//! A seeded llama checkpoint in memory, of any shape: for tests of what depends on shapes alone.

use crate::Noise;
use half::f16;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use twoclock_core::weights::Checkpoint;
use twoclock_core::weights::source::{ByteSource, ModelFiles};

/// Shape of a synthetic model.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Vocabulary.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_position_embeddings: usize,
    /// Seeds the weights.
    pub seed: u64,
}

impl Synthetic {
    /// A shape that reaches every border of the chains in little time: K of two and a half and of
    /// four and a half spans, grouped queries, and contexts of several parts.
    pub fn borders() -> Self {
        Self {
            hidden_size: 320,
            intermediate_size: 576,
            num_hidden_layers: 2,
            num_attention_heads: 3,
            num_key_value_heads: 1,
            head_dim: 64,
            vocab_size: 200,
            max_position_embeddings: 768,
            seed: 42,
        }
    }

    /// The checkpoint, in float16.
    ///
    /// # Panics
    /// When the engine does not take it.
    pub fn checkpoint(&self) -> Checkpoint {
        let config = serde_json::json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": false,
            "eos_token_id": 0,
        });
        let files = Files {
            config: config.to_string().into_bytes(),
            weights: self.weights(),
        };
        Checkpoint::from_hf(&files).unwrap_or_else(|e| panic!("a synthetic model: {e}"))
    }

    /// The checkpoint with a window over some of its layers and soft caps, small so that they
    /// matter, on scores and logits.
    ///
    /// # Panics
    /// As [`checkpoint`](Self::checkpoint).
    pub fn windowed(&self, window: usize, sliding: &[bool]) -> Checkpoint {
        let mut checkpoint = self.checkpoint();
        let config = &mut checkpoint.config;
        config.sliding_window = Some(window);
        for (layer, &sliding) in config.layers.iter_mut().zip(sliding) {
            layer.sliding = sliding;
        }
        config.attention_logit_softcapping = Some(2.0);
        config.final_logit_softcapping = Some(3.0);
        checkpoint
    }

    fn weights(&self) -> Vec<u8> {
        let q = self.num_attention_heads * self.head_dim;
        let kv = self.num_key_value_heads * self.head_dim;
        let (hidden, ffn) = (self.hidden_size, self.intermediate_size);
        let mut shapes: Vec<(String, Vec<usize>)> = vec![
            (
                "model.embed_tokens.weight".into(),
                vec![self.vocab_size, hidden],
            ),
            ("lm_head.weight".into(), vec![self.vocab_size, hidden]),
            ("model.norm.weight".into(), vec![hidden]),
        ];
        for layer in 0..self.num_hidden_layers {
            for (name, shape) in [
                ("input_layernorm", vec![hidden]),
                ("post_attention_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![q, hidden]),
                ("self_attn.k_proj", vec![kv, hidden]),
                ("self_attn.v_proj", vec![kv, hidden]),
                ("self_attn.o_proj", vec![hidden, q]),
                ("mlp.gate_proj", vec![ffn, hidden]),
                ("mlp.up_proj", vec![ffn, hidden]),
                ("mlp.down_proj", vec![hidden, ffn]),
            ] {
                shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
            }
        }
        let mut noise = Noise::new(self.seed);
        let tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = shapes
            .into_iter()
            .map(|(name, shape)| {
                let norm = shape.len() == 1;
                let scale = 1.7 / (shape[shape.len() - 1] as f32).sqrt();
                let bytes = (0..shape.iter().product())
                    .flat_map(|_| {
                        let v = noise.f32();
                        let v = if norm { 1.0 + 0.2 * v } else { scale * v };
                        f16::from_f32(v).to_le_bytes()
                    })
                    .collect();
                (name, (shape, bytes))
            })
            .collect();
        let views = tensors.iter().map(|(name, (shape, bytes))| {
            let view = TensorView::new(Dtype::F16, shape.clone(), bytes).expect("whole tensors");
            (name.as_str(), view)
        });
        safetensors::serialize(views, None).expect("serializes")
    }
}

struct Files {
    config: Vec<u8>,
    weights: Vec<u8>,
}

impl ModelFiles for Files {
    fn name(&self) -> &str {
        "synthetic"
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        let bytes = match file {
            "config.json" => &self.config,
            "model.safetensors" => &self.weights,
            _ => return Ok(None),
        };
        Ok(Some(Arc::new((file.to_owned(), bytes.clone()))))
    }
}
