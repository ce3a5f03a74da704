//! From what the user calls a model to where it lies: paths and installed names on this machine,
//! references to the hub by its cache or the network. Knows no format.

use std::path::Path;

use anyhow::{Context, bail};
use twoclock_core::config::TextAssets;
use twoclock_core::weights::text_assets::hf_text;

use crate::catalogue;
use crate::files::ModelPath;
use crate::hub::Hub;
use crate::hub_reference::HubReference;
use crate::index::Index;
use crate::pull::pull;
use crate::report::Reporter;
use crate::store::Store;
use crate::text_folder::TextFolder;

/// Where models come from.
pub struct Models<'a> {
    /// Those with names.
    pub store: &'a Store,
    /// The network may not be asked.
    pub offline: bool,
    /// Who is told.
    pub report: &'a Reporter,
}

impl Models<'_> {
    /// Where the model lies that `-m` names. One of the hub is fetched where it is not here.
    ///
    /// # Errors
    /// There is no such model, or it cannot be had.
    pub fn find(&self, reference: &str) -> anyhow::Result<ModelPath> {
        match HubReference::parse(reference)? {
            Some(hub) => self.fetch(&hub),
            None => Ok(ModelPath::resolve(reference, self.store)?),
        }
    }

    /// What the files of a model say about text; no weights need be there. Besides what
    /// [`find`](Self::find) takes, the path of a `tokenizer.json` or of a folder that has one.
    ///
    /// # Errors
    /// As [`find`](Self::find); a file that is not what its format says.
    pub fn text(&self, reference: &str) -> anyhow::Result<TextAssets> {
        if let Some(folder) = TextFolder::at(Path::new(reference)) {
            return Ok(hf_text(&folder)?);
        }
        Ok(self.find(reference)?.text()?)
    }

    /// Brings a model onto this machine: by its name in the catalogue, or from the hub.
    ///
    /// # Errors
    /// There is no such model, or it cannot be had.
    pub fn pull(&self, reference: &str) -> anyhow::Result<ModelPath> {
        if let Some(hub) = HubReference::parse(reference)? {
            return self.fetch(&hub);
        }
        let entry = catalogue::find(reference).with_context(|| {
            let names: Vec<_> = catalogue::ENTRIES.iter().map(|e| e.name).collect();
            format!(
                "the catalogue has no {reference:?}, it has: {} (a model of the hub is hf:ORG/REPO)",
                names.join(", ")
            )
        })?;
        if self.offline && self.store.get(entry.name)?.is_none() {
            bail!(
                "the model {} is not on this machine, and --offline forbids fetching it",
                entry.name
            );
        }
        let model = pull(entry, self.store, Index::from_env, self.report)?;
        Ok(ModelPath::resolve(
            &model.path.to_string_lossy(),
            self.store,
        )?)
    }

    fn fetch(&self, reference: &HubReference) -> anyhow::Result<ModelPath> {
        Ok(Hub::from_env(self.offline)?.fetch(reference, self.report)?)
    }
}
