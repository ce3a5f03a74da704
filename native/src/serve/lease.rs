//! Models in use: a model stays loaded as long as a lease of it is there. Knows not how it is loaded.

use std::sync::Arc;

use super::loaded::Loaded;
use super::slot::Slot;

/// A model in use: it stays loaded as long as this is there.
#[derive(Debug)]
pub struct Lease {
    loaded: Arc<Loaded>,
    counted: Counted,
}

impl Lease {
    /// The model.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.counted.0.offered.name
    }
}

/// A use of a model that is counted, from before it is loaded.
#[derive(Debug)]
pub struct Counted(Arc<Slot>);

impl Counted {
    /// Somebody is about to use it.
    pub fn new(slot: &Arc<Slot>) -> Self {
        slot.begin_use();
        Self(Arc::clone(slot))
    }

    /// It is loaded.
    pub fn into_lease(self, loaded: Arc<Loaded>) -> Lease {
        Lease {
            loaded,
            counted: self,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.end_use();
    }
}
