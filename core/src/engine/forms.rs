//! What compiles the forms of answers, once the tokens' texts are known. Shared between an engine and its
//! handles, so that whoever asks for a form compiles it on their own time. Knows no request.

use crate::sample::grammar::{Constraint, GrammarCompiler, TokenText};
use crate::text::Tokenizer;
use crate::types::{SamplingParams, StructuredOutputError, TokenId};
use std::sync::{Arc, OnceLock};

/// A compiler for one vocabulary, which may turn out too large; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct FormCompiler {
    compiler: Arc<OnceLock<Result<GrammarCompiler, StructuredOutputError>>>,
}

impl FormCompiler {
    /// Of the ids below `vocab_size`, of which `eos` end a generation.
    pub(super) fn new<'a>(
        vocab_size: usize,
        eos: &[TokenId],
        token: impl Fn(TokenId) -> TokenText<'a>,
    ) -> Self {
        let compiler = GrammarCompiler::new(vocab_size, eos, token);
        Self {
            compiler: Arc::new(OnceLock::from(compiler)),
        }
    }

    /// Takes the tokens' texts from here if a request has a form and they are not known yet. Takes a
    /// tenth of a second or two, once.
    pub(super) fn learn(
        &self,
        params: &SamplingParams,
        vocab_size: usize,
        eos: &[TokenId],
        tokenizer: &Tokenizer,
    ) {
        let token = |id| TokenText {
            bytes: tokenizer.token_bytes(id),
            special: tokenizer.is_special(id),
        };
        if params.structured_output.is_some() {
            let new = || GrammarCompiler::new(vocab_size, eos, token);
            self.compiler.get_or_init(new);
        }
    }

    /// The form of all answers that are asked for in this way, none of them begun; none where they have none.
    ///
    /// # Errors
    /// A form that cannot be enforced.
    pub(super) fn compile(
        &self,
        params: &SamplingParams,
        eos: &[TokenId],
    ) -> Result<Option<Arc<Constraint>>, StructuredOutputError> {
        let Some(form) = &params.structured_output else {
            return Ok(None);
        };
        let compiler = match self.compiler.get() {
            None => return Err(StructuredOutputError::NoTokenizer),
            Some(compiler) => compiler.as_ref().map_err(Clone::clone)?,
        };
        let constraint = Constraint::new(compiler.compile(form)?, params, eos)?;
        Ok(Some(Arc::new(constraint)))
    }
}
