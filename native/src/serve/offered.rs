//! A model as an operator offers it: its name and how it is loaded. Knows not whether it is.

use std::fmt;
use std::sync::Arc;

use super::loaded::Loaded;

/// Loads a model: blocks, for minutes if need be.
pub type Load = Arc<dyn Fn() -> anyhow::Result<Loaded> + Send + Sync>;

/// A model that can be asked for.
#[derive(Clone)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// Longest sequence, tokens.
    pub context_length: usize,
    /// How it comes.
    pub load: Load,
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
