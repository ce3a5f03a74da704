//! `hf:ORG/REPO[@REVISION][:FILE]`: what it names. Knows no network, no disk and no repository.

use std::fmt;

use hf_hub::{Repo, RepoType};
use thiserror::Error;

/// What a hub reference starts with.
pub const PREFIX: &str = "hf:";

/// A model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubReference {
    /// `ORG/REPO`.
    pub repo: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// A `.gguf` file of it, or the name of a quantization such as `Q4_K_M`.
    pub file: Option<String>,
}

/// Why a hub reference means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// It is not of the form.
    #[error(
        "{0:?} is no reference to the hub: write hf:ORG/REPO, hf:ORG/REPO:FILE.gguf or hf:ORG/REPO:Q4_K_M, with @REVISION after the repository for another than main"
    )]
    Form(String),
}

impl fmt::Display for HubReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.repo)?;
        if self.revision != "main" {
            write!(f, "@{}", self.revision)?;
        }
        match &self.file {
            Some(file) => write!(f, ":{file}"),
            None => Ok(()),
        }
    }
}

/// Whether a name can be part of a URL and of a path below a folder: plain parts between slashes.
pub fn is_plain(name: &str) -> bool {
    name.len() <= 512
        && name.split('/').all(|part| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '='))
        })
}

impl HubReference {
    /// The repository at its revision, as the hub's library names it.
    pub fn repository(&self) -> Repo {
        Repo::with_revision(self.repo.clone(), RepoType::Model, self.revision.clone())
    }

    /// Takes a reference apart; `None` for what does not start with [`PREFIX`].
    ///
    /// # Errors
    /// It starts so and is not of the form.
    pub fn parse(reference: &str) -> Result<Option<Self>, ReferenceError> {
        let Some(rest) = reference.strip_prefix(PREFIX) else {
            return Ok(None);
        };
        let bad = || ReferenceError::Form(reference.to_owned());
        let (place, file) = match rest.split_once(':') {
            Some((place, file)) => (place, Some(file)),
            None => (rest, None),
        };
        let (repo, revision) = place.split_once('@').unwrap_or((place, "main"));
        let good = repo.split('/').count() == 2
            && [Some(repo), Some(revision), file]
                .into_iter()
                .flatten()
                .all(is_plain);
        if !good {
            return Err(bad());
        }
        Ok(Some(Self {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            file: file.map(str::to_owned),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_apart() {
        assert_eq!(HubReference::parse("smollm2"), Ok(None));
        let whole = HubReference::parse("hf:org/repo@v1.0:sub/x.gguf")
            .unwrap()
            .unwrap();
        assert_eq!(
            (&*whole.repo, &*whole.revision, whole.file.as_deref()),
            ("org/repo", "v1.0", Some("sub/x.gguf"))
        );
        assert_eq!(whole.to_string(), "hf:org/repo@v1.0:sub/x.gguf");
        for bad in [
            "hf:",
            "hf:repo",
            "hf:a/b/c",
            "hf:a/..",
            "hf:../b",
            "hf:a/b:",
            "hf:a/b:../c.gguf",
            "hf:a/b@",
            "hf:a/b:c d",
            "hf:a//b",
            "hf:a/b:/etc/x.gguf",
            "hf:a/b?x",
        ] {
            assert_eq!(
                HubReference::parse(bad),
                Err(ReferenceError::Form(bad.to_owned())),
                "{bad}"
            );
        }
    }
}
