//! What a model is: the numbers that fix its shapes and its arithmetic, and its vocabulary, whatever
//! file they came from. Knows no file format (`weights` fills it) and no device.

mod model;
mod rope;

pub(crate) use model::MAX_LAYERS;
pub use model::{
    Activation, Architecture, ConfigError, LayerConfig, LayerRope, ModelConfig, MoeConfig,
};
pub use rope::{RopePairing, RopeParameters, RopeScaling};

use crate::types::TokenId;

/// Texts of tokens that end a generation, in whatever vocabulary they stand.
const END_OF_GENERATION_TOKENS: [&str; 24] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|end|>",
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
    // Between the files of a program, and where a gap of one was to be filled.
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// Whether a token of this text ends a generation. Files often name only one id where the model uses
/// several; llama.cpp's `llama-vocab.cpp` knows the same texts.
///
/// `</s>` does where it is a `control` token. Where it is ordinary, it is the end of struck-out text
/// in HTML, as in the vocabularies of Gemma and Qwen.
pub fn ends_generation(text: &str, control: bool) -> bool {
    END_OF_GENERATION_TOKENS.contains(&text) || (control && text == "</s>")
}

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
