//! The shape and arithmetic of a decoder-only model, and what of it cannot be.

use thiserror::Error;

use super::{RopePairing, RopeParameters};
use crate::types::TokenId;

/// Which family's differences apply over the shared decoder block. All that is computed follows
/// from the other fields of [`ModelConfig`]; this names where they came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2 and everything shaped like them.
    #[default]
    Llama,
    /// Llama with windowed attention.
    Mistral,
    /// Mistral with experts.
    Mixtral,
    /// Biases on q, k and v; windows on the upper layers.
    Qwen2,
    /// Norms of query and key heads.
    Qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Scaled embeddings, gains stored less one, GELU.
    Gemma,
    /// Gemma with soft caps, norms around every sublayer, and a window on every other layer.
    Gemma2,
    /// Gemma 2 with norms of query and key heads instead of caps; local and global rotary bases.
    Gemma3,
    /// Fused projections; `LongRoPE`; partial rotation (Phi-4-mini).
    Phi3,
    /// Llama with layers that are not rotated.
    SmolLm3,
}

/// What gates the feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x · sigmoid(x).
    #[default]
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// Which rotary embedding a layer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LayerRope {
    /// None: its attention knows no positions but by the mask.
    None,
    /// [`ModelConfig::rope`].
    #[default]
    Global,
    /// [`ModelConfig::rope_local`].
    Local,
}

/// What distinguishes a layer from its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerConfig {
    /// Attention sees [`ModelConfig::sliding_window`] tokens only.
    pub sliding: bool,
    /// Its rotary embedding.
    pub rope: LayerRope,
    /// The feed-forward network is a mixture of [`ModelConfig::moe`]'s experts.
    pub moe: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoeConfig {
    /// Experts of a layer.
    pub num_experts: usize,
    /// Experts a token goes to.
    pub num_experts_per_tok: usize,
    /// Width of one expert.
    pub moe_intermediate_size: usize,
    /// The chosen experts' weights are scaled to sum to 1.
    pub norm_topk_prob: bool,
}

/// The shape and arithmetic of a decoder-only model.
///
/// The default has no size at all and does not pass [`check`](Self::check): it stands behind
/// `..ModelConfig::default()`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelConfig {
    /// Family.
    pub architecture: Architecture,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network (of the dense layers).
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads a layer.
    pub num_attention_heads: usize,
    /// Key/value heads a layer; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Longest sequence the model was made for.
    pub max_position_embeddings: usize,
    /// Epsilon of the root-mean-square norms.
    pub rms_norm_eps: f32,
    /// Added to the stored gains of every norm: 1 in Gemma's safetensors, whose gains are stored
    /// less one, else 0.
    pub norm_offset: f32,
    /// What gates the feed-forward network.
    pub hidden_act: Activation,
    /// Embeddings are multiplied by this; 1 in most families.
    pub embedding_scale: f32,
    /// Queries are multiplied by this, usually `head_dim^-½`.
    pub attention_scale: f32,
    /// Scores s become `cap · tanh(s / cap)` before the mask.
    pub attention_logit_softcapping: Option<f32>,
    /// Logits become `cap · tanh(logit / cap)`.
    pub final_logit_softcapping: Option<f32>,
    /// Query and key heads are normed, each by itself, before they are rotated.
    pub qk_norm: bool,
    /// The output of each sublayer is normed before it joins the residual stream.
    pub post_norms: bool,
    /// Tokens a query of a sliding layer sees, its own included.
    pub sliding_window: Option<usize>,
    /// What each layer is, first to last; as many as `num_hidden_layers`.
    pub layers: Vec<LayerConfig>,
    /// Rotated dimensions of a head, from its first on; even, at most `head_dim`.
    pub rotary_dim: usize,
    /// Rotary embedding of [`LayerRope::Global`] layers.
    pub rope: RopeParameters,
    /// Rotary embedding of [`LayerRope::Local`] layers.
    pub rope_local: Option<RopeParameters>,
    /// Pairing of the rotated dimensions in this file's q and k rows.
    pub rope_pairing: RopePairing,
    /// The experts of [`LayerConfig::moe`] layers.
    pub moe: Option<MoeConfig>,
    /// The output projection is the embedding table.
    pub tie_word_embeddings: bool,
    /// q, k and v projections carry biases.
    pub qkv_bias: bool,
    /// The o projection carries a bias.
    pub o_bias: bool,
    /// gate, up and down projections carry biases.
    pub mlp_bias: bool,
    /// Beginning-of-sequence id, if the model has one.
    pub bos_token_id: Option<TokenId>,
    /// Every id that ends a generation.
    pub eos_token_ids: Vec<TokenId>,
}

/// A number of a model's configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is {found}, but it must be {expected}")]
pub struct ConfigError {
    /// Field of [`ModelConfig`].
    pub field: &'static str,
    /// Its value.
    pub found: String,
    /// What would do.
    pub expected: String,
}

impl ModelConfig {
    /// Tokens a query of a layer sees, its own included; `None` where it sees all before it.
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.sliding_window.filter(|_| self.layers[layer].sliding)
    }

    /// A layer's experts; `None` where its feed-forward network is dense.
    pub fn experts(&self, layer: usize) -> Option<&MoeConfig> {
        self.moe.as_ref().filter(|_| self.layers[layer].moe)
    }

    /// Checks that every number is possible and that they go together, so that shapes computed
    /// from them neither overflow nor come out empty.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_sizes()?;
        self.check_numbers()?;
        self.check_layers()?;
        for (rope, field) in std::iter::once((&self.rope, "rope_scaling")).chain(
            self.rope_local
                .iter()
                .map(|rope| (rope, "the local rope_scaling")),
        ) {
            rope.check(self.rotary_dim / 2, field)?;
        }
        for &id in self.bos_token_id.iter().chain(&self.eos_token_ids) {
            if id as usize >= self.vocab_size {
                return fail(
                    "a bos or eos token id",
                    id,
                    format!("below vocab_size {}", self.vocab_size),
                );
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        let moe = self.moe.unwrap_or(MoeConfig {
            num_experts: 1,
            num_experts_per_tok: 1,
            moe_intermediate_size: 1,
            norm_topk_prob: false,
        });
        // Bounds no model comes near, far below where products of two overflow.
        for (field, value, most) in [
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden_size, 1 << 18),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            ("num_hidden_layers", self.num_hidden_layers, MAX_LAYERS),
            ("num_attention_heads", self.num_attention_heads, 1 << 12),
            ("num_key_value_heads", self.num_key_value_heads, 1 << 12),
            ("head_dim", self.head_dim, 1 << 10),
            ("rotary_dim", self.rotary_dim, self.head_dim),
            (
                "max_position_embeddings",
                self.max_position_embeddings,
                1 << 28,
            ),
            ("sliding_window", self.sliding_window.unwrap_or(1), 1 << 28),
            ("num_experts", moe.num_experts, MAX_EXPERTS),
            (
                "num_experts_per_tok",
                moe.num_experts_per_tok,
                moe.num_experts,
            ),
            ("moe_intermediate_size", moe.moe_intermediate_size, 1 << 20),
        ] {
            if value == 0 || value > most {
                return fail(field, value, format!("from 1 to {most}"));
            }
        }
        if !self
            .num_attention_heads
            .is_multiple_of(self.num_key_value_heads)
        {
            return fail(
                "num_key_value_heads",
                self.num_key_value_heads,
                format!(
                    "a divisor of num_attention_heads {}",
                    self.num_attention_heads
                ),
            );
        }
        for (field, value) in [("head_dim", self.head_dim), ("rotary_dim", self.rotary_dim)] {
            if !value.is_multiple_of(2) {
                return fail(field, value, "even".to_owned());
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), ConfigError> {
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            let expected = "above 0 and below 1".to_owned();
            return fail("rms_norm_eps", self.rms_norm_eps, expected);
        }
        for (field, value) in [
            ("attention_scale", Some(self.attention_scale)),
            ("embedding_scale", Some(self.embedding_scale)),
            (
                "attention_logit_softcapping",
                self.attention_logit_softcapping,
            ),
            ("final_logit_softcapping", self.final_logit_softcapping),
        ] {
            if let Some(value) = value
                && !(value > 0.0 && value.is_finite())
            {
                return fail(field, value, "above 0 and finite".to_owned());
            }
        }
        Ok(())
    }

    fn check_layers(&self) -> Result<(), ConfigError> {
        if self.layers.len() != self.num_hidden_layers {
            return fail(
                "layers",
                format!("{} long", self.layers.len()),
                format!(
                    "one for each of num_hidden_layers {}",
                    self.num_hidden_layers
                ),
            );
        }
        let lacks = |field, found: &str| {
            let expected = "given, as a layer asks for it".to_owned();
            fail(field, found, expected)
        };
        if self.sliding_window.is_none() && self.layers.iter().any(|layer| layer.sliding) {
            return lacks("sliding_window", "missing");
        }
        if self.rope_local.is_none() && self.layers.iter().any(|l| l.rope == LayerRope::Local) {
            return lacks("the local rotary base", "missing");
        }
        if self.moe.is_none() && self.layers.iter().any(|layer| layer.moe) {
            return lacks("num_experts", "missing");
        }
        Ok(())
    }
}

/// Most decoder layers.
pub(crate) const MAX_LAYERS: usize = 1 << 10;
/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 10;

pub(super) fn fail(
    field: &'static str,
    found: impl ToString,
    expected: String,
) -> Result<(), ConfigError> {
    Err(ConfigError {
        field,
        found: found.to_string(),
        expected,
    })
}
