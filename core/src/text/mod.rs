//! Text: tokenizers, chat templates and incremental detokenization.
use thiserror::Error;
/// Why a tokenizer or template cannot be used.
#[derive(Debug, Error)]
pub enum TextError {}
