//! What a model is: the numbers that fix its shapes and its arithmetic, and its vocabulary, whatever
//! file they came from. Knows no file format (`weights` fills it) and no device.

use thiserror::Error;

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
    /// Checks that every number is possible and that they go together, so that shapes computed
    /// from them neither overflow nor come out empty.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fail = |field, found: String, expected: String| {
            Err(ConfigError {
                field,
                found,
                expected,
            })
        };
        // Bounds no model comes near, far below where products of two overflow.
        for (field, value, most) in [
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden_size, 1 << 18),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            ("num_hidden_layers", self.num_hidden_layers, 1 << 10),
            ("num_attention_heads", self.num_attention_heads, 1 << 12),
            ("num_key_value_heads", self.num_key_value_heads, 1 << 12),
            ("head_dim", self.head_dim, 1 << 10),
            (
                "max_position_embeddings",
                self.max_position_embeddings,
                1 << 28,
            ),
        ] {
            if value == 0 || value > most {
                return fail(field, value.to_string(), format!("from 1 to {most}"));
            }
        }
        if !self
            .num_attention_heads
            .is_multiple_of(self.num_key_value_heads)
        {
            return fail(
                "num_key_value_heads",
                self.num_key_value_heads.to_string(),
                format!(
                    "a divisor of num_attention_heads {}",
                    self.num_attention_heads
                ),
            );
        }
        if !self.head_dim.is_multiple_of(2) {
            return fail("head_dim", self.head_dim.to_string(), "even".to_owned());
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            return fail(
                "rms_norm_eps",
                self.rms_norm_eps.to_string(),
                "above 0 and below 1".to_owned(),
            );
        }
        if !(self.rope_theta >= 1.0 && self.rope_theta.is_finite()) {
            return fail(
                "rope_theta",
                self.rope_theta.to_string(),
                "at least 1 and finite".to_owned(),
            );
        }
        let positive = |x: f32| x > 0.0 && x.is_finite();
        let (ok, expected) = match &self.rope_scaling {
            RopeScaling::None => (true, String::new()),
            RopeScaling::Linear { factor } => (positive(*factor), "of a factor above 0".into()),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => (
                positive(*factor)
                    && positive(*low_freq_factor)
                    && positive(*high_freq_factor)
                    && low_freq_factor < high_freq_factor
                    && *original_max_position_embeddings > 0,
                "of positive numbers with low_freq_factor below high_freq_factor".into(),
            ),
            RopeScaling::Factors(factors) => (
                factors.len() == self.head_dim / 2 && factors.iter().all(|&f| positive(f)),
                format!("{} numbers above 0, one a rotary pair", self.head_dim / 2),
            ),
        };
        if !ok {
            return fail("rope_scaling", format!("{:?}", self.rope_scaling), expected);
        }
        for &id in self.bos_token_id.iter().chain(&self.eos_token_ids) {
            if id as usize >= self.vocab_size {
                return fail(
                    "a bos or eos token id",
                    id.to_string(),
                    format!("below vocab_size {}", self.vocab_size),
                );
            }
        }
        Ok(())
    }
}

/// Texts of tokens that end a generation, in whatever vocabulary they stand. Files often name only
/// one id where the model uses several; llama.cpp's `llama-vocab.cpp` knows the same texts.
pub const END_OF_GENERATION_TOKENS: [&str; 22] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|end|>",
    "</s>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// What a token of a [`Vocabulary`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// Stands for what no other token can spell.
    Unknown,
    /// Structure, such as the end of a turn; has no text of its own.
    Control,
    /// Text that is never split.
    UserDefined,
    /// Never made nor read.
    Unused,
    /// One byte, written `<0xNN>`.
    Byte,
}

/// A vocabulary as GGUF lists it. Plain data: `weights` reads it, `text` builds a tokenizer of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocabulary {
    /// Kind of tokenizer: `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE).
    pub model: String,
    /// Name of the rule that splits text before merging (byte-level BPE).
    pub pre: Option<String>,
    /// Text of every token, by id.
    pub tokens: Vec<String>,
    /// Kind of every token, by id.
    pub kinds: Vec<TokenKind>,
    /// Score of every token, by id (SentencePiece).
    pub scores: Vec<f32>,
    /// Merges, best first, each two pieces with a space between (byte-level BPE).
    pub merges: Vec<String>,
    /// Beginning of sequence.
    pub bos: Option<TokenId>,
    /// End of sequence.
    pub eos: Option<TokenId>,
    /// The unknown token.
    pub unk: Option<TokenId>,
    /// Every id that ends a generation, ascending.
    pub eog: Vec<TokenId>,
    /// Put `bos` before a text; `None` where the file leaves it to the kind of tokenizer.
    pub add_bos: Option<bool>,
    /// Put `eos` after a text.
    pub add_eos: Option<bool>,
    /// Put a space before a text (SentencePiece).
    pub add_space_prefix: Option<bool>,
}

/// Where a tokenizer is made from.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizerAsset {
    /// The bytes of a `tokenizer.json`.
    Json(Vec<u8>),
    /// A vocabulary of a GGUF file.
    Vocabulary(Vocabulary),
}

/// What a model's files say about text. Plain data: `weights` reads it, `text` uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextAssets {
    /// The tokenizer, if the files have one.
    pub tokenizer: Option<TokenizerAsset>,
    /// The chat template, if the files have one.
    pub chat_template: Option<String>,
    /// Text of the beginning-of-sequence token, for the template.
    pub bos_token: Option<String>,
    /// Text of the end-of-sequence token, for the template.
    pub eos_token: Option<String>,
}
