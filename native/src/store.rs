//! Where models lie on this machine: one folder a model under the models folder. Knows the disk
//! and no network.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

/// Why the models folder cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No folder can be named.
    #[error("there is no home folder to keep models in: set TWOCLOCK_HOME to a folder for them")]
    NoHome,
    /// The disk refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// There is no such model.
    #[error(
        "no model named {name} is installed under {}: `twoclock list` shows what is", models.display()
    )]
    NotInstalled {
        /// Name asked for.
        name: String,
        /// The models folder.
        models: PathBuf,
    },
    /// The name could escape the folder.
    #[error(
        "{0:?} is no model name: names have letters, digits, '.', '_' and '-' and start with a letter or digit"
    )]
    BadName(String),
}

/// The models folder.
#[derive(Clone, Debug)]
pub struct Store {
    models: PathBuf,
}

/// A model on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Installed {
    /// Name, as `-m` takes it.
    pub name: String,
    /// The file or folder to open.
    pub path: PathBuf,
    /// All its files together, in bytes.
    pub bytes: u64,
}

impl Store {
    /// `$TWOCLOCK_HOME/models`, else `twoclock/models` in the user's data folder.
    ///
    /// # Errors
    /// The host names no home.
    pub fn from_env() -> Result<Self, StoreError> {
        let var = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let home = var("TWOCLOCK_HOME")
            .or_else(|| var("XDG_DATA_HOME").map(|data| data.join("twoclock")))
            .or_else(|| var("LOCALAPPDATA").map(|data| data.join("twoclock")))
            .or_else(|| var("HOME").map(|home| home.join(".local/share/twoclock")))
            .ok_or(StoreError::NoHome)?;
        Ok(Self::at(&home))
    }

    /// The models folder under this home.
    pub fn at(home: &Path) -> Self {
        Self {
            models: home.join("models"),
        }
    }

    /// The folder itself; it need not exist.
    pub fn models(&self) -> &Path {
        &self.models
    }

    /// Where compiled pipelines are kept, beside the models; it need not exist.
    pub fn caches(&self) -> PathBuf {
        self.models.with_file_name("pipelines")
    }

    /// The folder of this model; it need not exist.
    ///
    /// # Errors
    /// The name could escape the models folder.
    pub fn folder(&self, name: &str) -> Result<PathBuf, StoreError> {
        let good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if good {
            Ok(self.models.join(name))
        } else {
            Err(StoreError::BadName(name.to_owned()))
        }
    }

    /// Every model here, by name.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    pub fn list(&self) -> Result<Vec<Installed>, StoreError> {
        let io = |source| StoreError::Io {
            path: self.models.clone(),
            source,
        };
        let entries = match fs::read_dir(&self.models) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(io(e)),
        };
        let mut installed = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io)?;
            // What `pull` has not finished starts with a dot.
            if let Ok(name) = entry.file_name().into_string()
                && let Ok(Some(model)) = self.get(&name)
            {
                installed.push(model);
            }
        }
        installed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(installed)
    }

    /// The model of this name, if it is here.
    ///
    /// # Errors
    /// A bad name, or a folder that cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<Installed>, StoreError> {
        let folder = self.folder(name)?;
        let io = |source| StoreError::Io {
            path: folder.clone(),
            source,
        };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(io(e)),
        };
        let mut bytes = 0;
        let mut gguf = Vec::new();
        let mut directory = false;
        for entry in entries {
            let path = entry.map_err(io)?.path();
            bytes += fs::metadata(&path).map_err(io)?.len();
            directory |= path.file_name().is_some_and(|name| name == "config.json");
            if path.extension().is_some_and(|ext| ext == "gguf") {
                gguf.push(path);
            }
        }
        gguf.sort();
        let path = match gguf.into_iter().next() {
            Some(file) => file,
            None if directory => folder,
            None => return Ok(None),
        };
        Ok(Some(Installed {
            name: name.to_owned(),
            path,
            bytes,
        }))
    }

    /// Deletes the model of this name and says how many bytes that freed.
    ///
    /// # Errors
    /// There is no such model, or the disk refuses.
    pub fn remove(&self, name: &str) -> Result<u64, StoreError> {
        let Some(model) = self.get(name)? else {
            return Err(StoreError::NotInstalled {
                name: name.to_owned(),
                models: self.models.clone(),
            });
        };
        let folder = self.folder(name)?;
        // Renamed first: a removal that is cut leaves no half model under a name.
        let doomed = self.models.join(format!(".{name}.removed"));
        let io = |source| StoreError::Io {
            path: folder.clone(),
            source,
        };
        match fs::remove_dir_all(&doomed) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
        fs::rename(&folder, &doomed).map_err(io)?;
        fs::remove_dir_all(&doomed).map_err(io)?;
        Ok(model.bytes)
    }
}

/// Bytes for people, in powers of ten as disks are sold.
pub fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}
