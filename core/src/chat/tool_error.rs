//! Why calls of a tool cannot be asked for in a model's style. Knows no protocol.

use thiserror::Error;

/// What is wrong with a tool, by its name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ToolError {
    /// Its parameters are more than a form is made of.
    #[error(
        "the parameters of tool {tool:?}: {what} is {found}, but at most {limit} is taken: make them simpler"
    )]
    TooLarge {
        /// The tool.
        tool: String,
        /// What there is too much of.
        what: &'static str,
        /// How much there is, or was found before the rest was left.
        found: usize,
        /// How much there may be.
        limit: usize,
    },
    /// A schema refers to something that is not among the definitions.
    #[error(
        "parameter {parameter:?} of tool {tool:?} refers to {reference:?}, but this model's calls are held to \
         a schema only where it refers to what is in $defs or definitions: define it there"
    )]
    Reference {
        /// The tool.
        tool: String,
        /// Its parameter.
        parameter: String,
        /// What it refers to.
        reference: String,
    },
}

/// The beginning of a text, long enough to find it by.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
