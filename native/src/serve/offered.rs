//! A model as an operator offers it: its names and how it is loaded. Knows not whether it is.

use std::fmt;
use std::sync::Arc;

use super::loaded::Loaded;
use crate::openai::messages;
use crate::openai::refusal::Refusal;

/// Loads a model: blocks, for minutes if need be.
pub type Load = Arc<dyn Fn() -> anyhow::Result<Loaded> + Send + Sync>;

/// A model that can be asked for.
#[derive(Clone)]
pub struct Offered {
    /// Its name: what answers, metrics and the log call it.
    pub name: String,
    /// Further names that it may be asked for by.
    pub aliases: Vec<String>,
    /// Longest sequence, tokens.
    pub context_length: usize,
    /// Its files, or its operator, say how chats are written for it.
    pub has_chat_template: bool,
    /// How it comes.
    pub load: Load,
}

impl Offered {
    /// All its names, the first one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.aliases.iter().map(String::as_str);
        [self.name.as_str()].into_iter().chain(aliases)
    }

    /// Whether it can be asked chats, which is known before it is loaded.
    ///
    /// # Errors
    /// What is said where it cannot.
    pub fn takes_chats(&self) -> Result<(), Refusal> {
        match self.has_chat_template {
            true => Ok(()),
            false => Err(messages::no_template()),
        }
    }
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
