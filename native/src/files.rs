//! Model files of this machine as the engine takes them: byte sources, and what a
//! model reference (`-m`) means. Knows no format.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use twoclock_core::config::TextAssets;
use twoclock_core::weights::text_assets::{gguf_text, hf_text};
use twoclock_core::weights::{ByteSource, Checkpoint, ModelFiles, WeightsError};

use crate::catalogue;
use crate::store::{Store, StoreError};

/// Why a model reference leads to no file.
#[derive(Debug, Error)]
pub enum FilesError {
    /// Known, and not on this machine.
    #[error("the model {name} is not on this machine: `twoclock pull {name}` brings it")]
    NotPulled {
        /// Its name in the catalogue.
        name: String,
    },
    /// Neither a name nor a path.
    #[error(
        "{reference:?} is neither an installed model nor a path: `twoclock list` shows the models, a path names a .gguf file or a folder with config.json and .safetensors files, and hf:ORG/REPO a model of the hub"
    )]
    Unknown {
        /// What was asked for.
        reference: String,
    },
    /// A path to something else.
    #[error("{}: {cause}", path.display())]
    NotAModel {
        /// What was asked for.
        path: PathBuf,
        /// What it is or lacks.
        cause: &'static str,
    },
    /// The models folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files are there and cannot be used.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The disk refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
}

/// Where a model lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelPath {
    /// A GGUF file: a whole model, or any part of one that is split over files beside it.
    Gguf(PathBuf),
    /// A Hugging Face folder: config.json, tokenizer.json and safetensors shards.
    Directory(PathBuf),
}

impl ModelPath {
    /// What a reference means: a path if one is there, else the name of an installed model.
    ///
    /// # Errors
    /// There is no such thing, or it is no model.
    pub fn resolve(reference: &str, store: &Store) -> Result<Self, FilesError> {
        let path = Path::new(reference);
        if path.exists() {
            return Self::at(path);
        }
        match store.get(reference) {
            Ok(Some(model)) => Self::at(&model.path),
            Ok(None) if catalogue::find(reference).is_some() => Err(FilesError::NotPulled {
                name: reference.to_owned(),
            }),
            Ok(None) | Err(StoreError::BadName(_)) => Err(FilesError::Unknown {
                reference: reference.to_owned(),
            }),
            Err(e) => Err(e.into()),
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        match self {
            Self::Gguf(path) | Self::Directory(path) => path,
        }
    }

    /// Reads everything but the tensors' data.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not what its format says.
    pub fn open(&self) -> Result<Checkpoint, FilesError> {
        match self {
            Self::Gguf(path) => Ok(match gguf_in_folder(path)? {
                (folder, Some(name)) => Checkpoint::from_gguf_parts(&folder, name)?,
                (_, None) => Checkpoint::from_gguf(Arc::new(ModelFile::open(path)?))?,
            }),
            Self::Directory(path) => Ok(Checkpoint::from_hf(&Folder::new(path))?),
        }
    }

    /// Reads what it says about text; there need be no tensors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn text(&self) -> Result<TextAssets, FilesError> {
        match self {
            Self::Gguf(path) => {
                let (folder, name) = gguf_in_folder(path)?;
                let name = name.ok_or_else(|| FilesError::NotAModel {
                    path: path.clone(),
                    cause: "its name is not UTF-8; give it another",
                })?;
                Ok(gguf_text(&folder, name)?)
            }
            Self::Directory(path) => Ok(hf_text(&Folder::new(path))?),
        }
    }

    fn at(path: &Path) -> Result<Self, FilesError> {
        let not = |cause| FilesError::NotAModel {
            path: path.to_owned(),
            cause,
        };
        if path.is_dir() {
            if path.join("config.json").is_file() {
                Ok(Self::Directory(path.to_owned()))
            } else {
                Err(not(
                    "this folder has no config.json, so it is no model folder",
                ))
            }
        } else if path
            .extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case("gguf"))
        {
            Ok(Self::Gguf(path.to_owned()))
        } else {
            Err(not(
                "a model file ends in .gguf, and a model folder has config.json",
            ))
        }
    }
}

/// Where the other parts of a model would lie, and the file's name there if it is one a part can have.
fn gguf_in_folder(path: &Path) -> Result<(Folder, Option<&str>), FilesError> {
    // What is no file at all is said by its whole path.
    ModelFile::open(path)?;
    let folder = Folder::new(path.parent().unwrap_or(Path::new("")));
    Ok((folder, path.file_name().and_then(OsStr::to_str)))
}

/// A file that is read where it is asked for, so a model larger than memory can be opened, and nothing of
/// it stays in this process's memory but what was asked for.
#[derive(Debug)]
pub struct ModelFile {
    name: String,
    file: File,
    len: u64,
}

impl ModelFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// It is not there, is no file or cannot be read.
    pub fn open(path: &Path) -> Result<Self, FilesError> {
        let io = |source| FilesError::Io {
            path: path.to_owned(),
            source,
        };
        // Opening a pipe would wait for a writer, and none of the others has a length.
        if !fs::metadata(path).map_err(io)?.is_file() {
            return Err(FilesError::NotAModel {
                path: path.to_owned(),
                cause: "it is no regular file",
            });
        }
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let name = path.file_name().map_or_else(
            || "model".into(),
            |name| name.to_string_lossy().into_owned(),
        );
        Ok(Self { name, file, len })
    }
}

impl ByteSource for ModelFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;
        self.file.read_exact_at(buf, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt as _;
        while !buf.is_empty() {
            match self.file.seek_read(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// A folder of files on this machine.
#[derive(Debug)]
pub(crate) struct Folder {
    name: String,
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`, called by its last part.
    pub(crate) fn new(path: &Path) -> Self {
        let name = match path.file_name().unwrap_or(path.as_os_str()) {
            name if name.is_empty() => ".".into(),
            name => name.to_string_lossy().into_owned(),
        };
        Self {
            name,
            path: path.to_owned(),
        }
    }
}

impl ModelFiles for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        // Names come out of the folder's own files and must not lead out of it.
        let mut parts = Path::new(file).components();
        if file.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{file:?} is no name of a file in the folder"),
            ));
        }
        match ModelFile::open(&self.path.join(file)) {
            Ok(file) => Ok(Some(Arc::new(file))),
            Err(FilesError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(FilesError::Io { source, .. }) => Err(source),
            Err(e) => Err(io::Error::other(e)),
        }
    }
}
