//! The hub's cache on this machine, in the layout that its other programs share: contents by hash,
//! a folder of links a commit, and the commits of named revisions. Knows no network.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hf_hub::Cache;

use crate::hub_reference::{HubReference, is_plain};

/// The cache.
#[derive(Clone, Debug)]
pub struct HubCache {
    cache: Cache,
}

impl HubCache {
    /// The cache in this folder; it need not exist.
    pub fn at(folder: PathBuf) -> Self {
        Self {
            cache: Cache::new(folder),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.cache.path()
    }

    /// Where the files of a commit are, by their names.
    pub fn snapshot(&self, reference: &HubReference, commit: &str) -> PathBuf {
        self.cache.repo(reference.repository()).pointer_path(commit)
    }

    /// Where the content of this hash is.
    pub fn blob(&self, reference: &HubReference, hash: &str) -> PathBuf {
        self.cache.repo(reference.repository()).blob_path(hash)
    }

    /// Notes that a reference's revision is this commit.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn name(&self, reference: &HubReference, commit: &str) -> io::Result<()> {
        self.cache.repo(reference.repository()).create_ref(commit)
    }

    /// The snapshot of a reference's revision as it was last seen, if there is one.
    pub fn newest(&self, reference: &HubReference) -> Option<PathBuf> {
        let folder = self.path().join(reference.repository().folder_name());
        let commit = match fs::read_to_string(folder.join("refs").join(&reference.revision)) {
            Ok(commit) => commit.trim().to_owned(),
            // A commit is its own name.
            Err(_) => reference.revision.clone(),
        };
        let snapshot = self.snapshot(reference, &commit);
        (is_plain(&commit) && snapshot.is_dir()).then_some(snapshot)
    }

    /// Files of a snapshot, by their paths with slashes.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn files(snapshot: &Path) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        list(snapshot, "", 0, &mut files)?;
        files.sort();
        Ok(files)
    }
}

/// Folders below a snapshot that are looked into.
const MOST_DEPTH: usize = 4;

/// Files below a folder, by their paths with slashes; broken links are not there.
fn list(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let name = format!("{prefix}{name}");
        match fs::metadata(entry.path()) {
            Ok(data) if data.is_file() => files.push(name),
            Ok(data) if data.is_dir() && depth < MOST_DEPTH => {
                list(&entry.path(), &format!("{name}/"), depth + 1, files)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes a snapshot's name for a file, as the hub's other programs do where the host can: by a link
/// relative to it, so that the cache can be moved.
///
/// # Errors
/// The disk refuses.
pub fn link(blob: &Path, pointer: &Path) -> io::Result<()> {
    match fs::remove_file(pointer) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    #[cfg(unix)]
    {
        // From snapshots/COMMIT/FILE: as many folders up as the file lies below the repository's.
        let repository = blob.ancestors().nth(2).unwrap_or(blob);
        let down = pointer.strip_prefix(repository).map_err(io::Error::other)?;
        let up: PathBuf = down.components().skip(1).map(|_| "..").collect();
        let hash = blob.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(up.join("blobs").join(hash), pointer)
    }
    #[cfg(not(unix))]
    fs::hard_link(blob, pointer)
}
