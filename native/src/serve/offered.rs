//! A model as an operator offers it: its names and how it is loaded. Knows not whether it is.

use std::fmt;
use std::sync::Arc;

use super::loaded::Loaded;

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
    /// How it comes.
    pub load: Load,
}

impl Offered {
    /// All its names, the first one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.aliases.iter().map(String::as_str);
        [self.name.as_str()].into_iter().chain(aliases)
    }
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
