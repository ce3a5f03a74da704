//! What a model is: the numbers that fix its shapes and its arithmetic, whatever file they came
//! from. Knows no file format (`weights` fills it) and no device.

use crate::types::TokenId;

/// Which family's differences apply over the shared decoder block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2 and everything shaped like them.
    Llama,
}

/// Longest-context corrections of the rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Inverse frequencies as they are.
    None,
    /// Positions divided by `factor`.
    Linear {
        /// Context extension, > 0.
        factor: f32,
    },
    /// Llama 3.1's smooth blend between full and divided frequencies.
    Llama3 {
        /// Division of the low frequencies.
        factor: f32,
        /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_max_position_embeddings / high_freq_factor` stay.
        high_freq_factor: f32,
        /// Context the model was first trained with.
        original_max_position_embeddings: u32,
    },
    /// Divisors given by the file, one a rotary pair (`rope_freqs.weight` of GGUF).
    Factors(Vec<f32>),
}

/// How rotary pairs lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairing {
    /// Dimension `i` turns with `i + rotary_dim / 2` (Hugging Face).
    Halves,
    /// Dimension `2 i` turns with `2 i + 1` (GGUF's llama files, whose q and k rows are permuted).
    Interleaved,
}

/// The shape and arithmetic of a decoder-only model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Family.
    pub architecture: Architecture,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
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
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Long-context correction.
    pub rope_scaling: RopeScaling,
    /// Pairing of the rotated dimensions in this file's q and k rows.
    pub rope_pairing: RopePairing,
    /// The output projection is the embedding table.
    pub tie_word_embeddings: bool,
    /// q, k, v and o projections carry biases.
    pub attention_bias: bool,
    /// gate, up and down projections carry biases.
    pub mlp_bias: bool,
    /// Beginning-of-sequence id, if the model has one.
    pub bos_token_id: Option<TokenId>,
    /// Every id that ends a generation.
    pub eos_token_ids: Vec<TokenId>,
}
