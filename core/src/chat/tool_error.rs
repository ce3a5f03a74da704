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
    /// A name would not come back from between tags.
    #[error(
        "{name:?} of tool {tool:?} cannot be read back from a call in this model's style: a name has no line end and \
         no {mark:?}, and is {limit} bytes at most"
    )]
    Name {
        /// The tool.
        tool: String,
        /// Its own name or a parameter's.
        name: String,
        /// What a name must not contain.
        mark: &'static str,
        /// Longest name of that kind, bytes.
        limit: usize,
    },
    /// A text that a parameter may be would not come back from between tags.
    #[error(
        "parameter {parameter:?} of tool {tool:?} may be a text with {mark} in it, which ends a parameter in this \
         model's style and cannot be read back: leave it out of enum and const"
    )]
    Text {
        /// The tool.
        tool: String,
        /// Its parameter.
        parameter: String,
        /// What the text contains.
        mark: &'static str,
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
