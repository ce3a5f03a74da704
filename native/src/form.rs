//! The form of an answer as it is asked for on the command line. Owns what is a file's name and what is
//! the thing itself; what a form means is the engine's.

use std::path::Path;

use anyhow::Context;
use clap::Args;
use twoclock_core::sample::grammar::{GrammarCompiler, TokenText};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{StructuredOutput, StructuredOutputError};

use crate::text_input::read_text;

/// What form an answer has: one of these, or none.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The form of the answer")]
#[group(id = "form", multiple = false)]
pub struct FormArgs {
    /// JSON that this schema allows: a file, or the schema itself, as in --json-schema
    /// '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}, "required":
    /// ["name"], "additionalProperties": false}'. Say in the prompt what the members mean; the form alone
    /// does not. Bound what may be long: an answer that is cut (-n) is no whole JSON.
    #[arg(long, value_name = "FILE|TEXT")]
    pub json_schema: Option<String>,
    /// Any JSON object.
    #[arg(long)]
    pub json_object: bool,
    /// A text that this regular expression matches from its beginning to its end, as in --regex
    /// '\d{4}-\d{2}-\d{2}'.
    #[arg(long, value_name = "RE")]
    pub regex: Option<String>,
    /// A text of this grammar, a file in Lark's syntax whose rule is `start`, such as start: "a" | "b"
    /// start.
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<std::path::PathBuf>,
    /// One of these texts, as in --choice yes --choice no.
    #[arg(long, value_name = "TEXT")]
    pub choice: Vec<String>,
}

impl FormArgs {
    /// The form; files are read.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn form(&self) -> anyhow::Result<Option<StructuredOutput>> {
        if let Some(schema) = &self.json_schema {
            let text = match schema.trim_start().starts_with('{') {
                true => schema.clone(),
                false => read_text(Path::new(schema))
                    .context("--json-schema takes a file, or a schema, which begins with {")?,
            };
            return Ok(Some(StructuredOutput::Json(text)));
        }
        if let Some(file) = &self.grammar {
            return Ok(Some(StructuredOutput::Grammar(read_text(file)?)));
        }
        let regex = self.regex.clone().map(StructuredOutput::Regex);
        Ok(match (regex, self.json_object, self.choice.is_empty()) {
            (Some(regex), _, _) => Some(regex),
            (None, true, _) => Some(StructuredOutput::JsonObject),
            (None, false, false) => Some(StructuredOutput::Choice(self.choice.clone())),
            (None, false, true) => None,
        })
    }
}

/// Refuses a form that cannot be enforced, before a model is loaded for it.
///
/// # Errors
/// What is wrong with it.
pub fn check(
    form: &StructuredOutput,
    tokenizer: &Tokenizer,
    vocab_size: usize,
) -> Result<(), StructuredOutputError> {
    let token = |id| TokenText {
        bytes: tokenizer.token_bytes(id),
        special: tokenizer.is_special(id),
    };
    let compiler = GrammarCompiler::new(vocab_size, tokenizer.eog(), token)?;
    compiler.compile(form).map(|_| ())
}
