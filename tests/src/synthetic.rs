//! A seeded checkpoint in memory, of any shape and a few families: for tests of what depends on
//! shapes alone.

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
        self.build("llama", &serde_json::json!({}), self.dense())
    }

    /// A checkpoint with norms of heads and `experts` of width `ffn`, of which a token goes to two.
    ///
    /// # Panics
    /// As [`checkpoint`](Self::checkpoint).
    pub fn mixture(&self, experts: usize, ffn: usize) -> Checkpoint {
        let differences = serde_json::json!({
            "num_experts": experts,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": ffn,
        });
        let mut shapes = vec![("mlp.gate".to_owned(), vec![experts, self.hidden_size])];
        shapes.extend(self.head_norms());
        for expert in 0..experts {
            for (name, shape) in [
                ("gate_proj", vec![ffn, self.hidden_size]),
                ("up_proj", vec![ffn, self.hidden_size]),
                ("down_proj", vec![self.hidden_size, ffn]),
            ] {
                shapes.push((format!("mlp.experts.{expert}.{name}"), shape));
            }
        }
        self.build("qwen3_moe", &differences, shapes)
    }

    /// A checkpoint with norms around every sublayer and of heads, GELU, scaled embeddings, and a
    /// window with a rotary base of its own on the first of every two layers.
    ///
    /// # Panics
    /// As [`checkpoint`](Self::checkpoint).
    pub fn gemma(&self, window: usize) -> Checkpoint {
        let differences = serde_json::json!({
            "sliding_window": window,
            "sliding_window_pattern": 2,
            "hidden_activation": "gelu_pytorch_tanh",
        });
        let mut shapes = self.dense();
        shapes.extend(self.head_norms());
        for name in ["pre_feedforward_layernorm", "post_feedforward_layernorm"] {
            shapes.push((name.to_owned(), vec![self.hidden_size]));
        }
        self.build("gemma3_text", &differences, shapes)
    }

    fn dense(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden_size, self.intermediate_size);
        vec![
            ("mlp.gate_proj".to_owned(), vec![ffn, hidden]),
            ("mlp.up_proj".to_owned(), vec![ffn, hidden]),
            ("mlp.down_proj".to_owned(), vec![hidden, ffn]),
        ]
    }

    fn head_norms(&self) -> [(String, Vec<usize>); 2] {
        ["q_norm", "k_norm"].map(|name| (format!("self_attn.{name}"), vec![self.head_dim]))
    }

    /// A model of some family: its fields beyond the shape, and each layer's tensors beyond those of
    /// attention and the two norms that all have.
    fn build(
        &self,
        model_type: &str,
        differences: &serde_json::Value,
        layer: Vec<(String, Vec<usize>)>,
    ) -> Checkpoint {
        let mut config = serde_json::json!({
            "model_type": model_type,
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
        for (field, value) in differences.as_object().expect("an object") {
            config[field] = value.clone();
        }
        let files = Files {
            config: config.to_string().into_bytes(),
            weights: self.weights(&layer),
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

    fn weights(&self, of_layer: &[(String, Vec<usize>)]) -> Vec<u8> {
        let q = self.num_attention_heads * self.head_dim;
        let kv = self.num_key_value_heads * self.head_dim;
        let hidden = self.hidden_size;
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
            ] {
                shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
            }
            for (name, shape) in of_layer {
                shapes.push((format!("model.layers.{layer}.{name}.weight"), shape.clone()));
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
