//! Text: tokenizers, chat templates and incremental detokenization. The only layer where strings
//! and token ids meet; knows neither weights nor requests.

use thiserror::Error;

mod component;
pub mod detokenize;
pub mod literal;
mod piece;
mod pre_tokenizer;
mod split_patterns;
pub mod stop;
pub mod strftime;
pub mod template;
mod template_json;
mod template_operands;
mod template_python;
mod template_tags;
pub mod tokenizer;
mod tokenizer_json;
mod vocabulary;

pub use detokenize::Detokenizer;
pub use literal::RenderedPrompt;
pub use stop::StopStrings;
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;

/// Why a tokenizer or template cannot be used.
#[derive(Debug, Error)]
pub enum TextError {
    /// The model's files have no tokenizer.
    #[error(
        "the model's files hold no tokenizer: put its tokenizer.json into the folder, or take a GGUF file with tokenizer.ggml.* in it"
    )]
    NoTokenizer,
    /// The tokenizer asks for something the engine does not do.
    #[error("the tokenizer's {field} is {found}, which is not supported; supported: {supported}")]
    Unsupported {
        /// Part of the tokenizer.
        field: &'static str,
        /// What the file holds.
        found: String,
        /// What the engine does.
        supported: String,
    },
    /// The tokenizer contradicts itself.
    #[error("the tokenizer's {field} is {found}, but {expected}")]
    Malformed {
        /// Part of the tokenizer.
        field: &'static str,
        /// What the file holds.
        found: String,
        /// What would do.
        expected: String,
    },
    /// The tokenizer's library refused a text or a file.
    #[error("the tokenizer failed: {0}")]
    Tokenizer(String),
    /// An id that is not in the vocabulary.
    #[error("token id {id} is not in the vocabulary of {size}")]
    UnknownId {
        /// The id.
        id: crate::types::TokenId,
        /// Ids there are.
        size: usize,
    },
    /// The model's files have no chat template.
    #[error("the model has no chat template; give the prompt as raw text")]
    NoTemplate,
    /// The chat template is no template.
    #[error("the chat template is no template: {0}")]
    TemplateSyntax(String),
    /// The chat template refused the conversation, in its own words.
    #[error("the chat template refuses this conversation: {0}")]
    TemplateRefused(String),
    /// The chat template failed on the conversation.
    #[error("the chat template failed: {0}")]
    TemplateFailed(String),
}
