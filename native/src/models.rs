//! From what the user calls a model to where it lies: paths and installed names on this machine,
//! references to the hub by its cache or the network. Knows no format.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use twoclock_core::config::TextAssets;
use twoclock_core::weights::gguf::PartName;
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

/// What a person would call the model that `-m` names: an installed one as it is, a file without its ending (and its
/// number, where it is a part of the model), a folder by its own name, one of the hub by its repository.
///
/// # Errors
/// A reference to the hub that is none.
pub fn short_name(reference: &str) -> anyhow::Result<String> {
    if let Some(hub) = HubReference::parse(reference)? {
        return Ok(hub.repo);
    }
    let path = Path::new(reference);
    if !path.exists() {
        return Ok(reference.to_owned());
    }
    // Some, such as `.`, have no name of their own.
    let whole = match path.file_name() {
        Some(_) => path.to_owned(),
        None => fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
    };
    let name = whole.file_name().unwrap_or(whole.as_os_str());
    let name = name.to_string_lossy();
    if path.is_dir() {
        return Ok(name.into_owned());
    }
    let stem = match PartName::parse(&name) {
        Some(part) => Path::new(part.stem),
        None => Path::new(&*name).file_stem().map_or(path, Path::new),
    };
    Ok(stem.to_string_lossy().into_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_what_a_person_would_type() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        fs::create_dir(at("My-Model.v2")).unwrap();
        for file in [
            "Model.Q4_1.gguf",
            "Big-00002-of-00003.gguf",
            "Odd.GGUF",
            "a b.gguf",
        ] {
            fs::write(at(file), "").unwrap();
        }
        for (reference, expected) in [
            ("smollm2".to_owned(), "smollm2"),
            ("hf:ORG/Repo-GGUF".to_owned(), "ORG/Repo-GGUF"),
            ("hf:ORG/Repo@v1:x.gguf".to_owned(), "ORG/Repo"),
            (at("Model.Q4_1.gguf"), "Model.Q4_1"),
            (at("Big-00002-of-00003.gguf"), "Big"),
            (at("Odd.GGUF"), "Odd"),
            (at("a b.gguf"), "a b"),
            (at("My-Model.v2"), "My-Model.v2"),
            (at("My-Model.v2/"), "My-Model.v2"),
            (at("My-Model.v2/."), "My-Model.v2"),
            (at("My-Model.v2/../My-Model.v2"), "My-Model.v2"),
        ] {
            assert_eq!(short_name(&reference).unwrap(), expected, "{reference}");
        }
        // Of what has no name of its own, that of where it leads.
        let above = short_name(&at("My-Model.v2/..")).unwrap();
        assert_eq!(
            Some(&*above),
            folder.path().file_name().and_then(|n| n.to_str())
        );
        assert!(short_name("hf:ORG").is_err());
    }
}
