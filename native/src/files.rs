//! Model files of this machine as the engine takes them: memory-mapped byte sources, and what a
//! model reference (`-m`) means. Knows no format.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use thiserror::Error;
use twoclock_core::weights::source::ByteSource;

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
        "{reference:?} is neither an installed model nor a path: `twoclock list` shows the models, and a path names a .gguf file or a folder with config.json and .safetensors files"
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
    /// One GGUF file.
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

/// A memory-mapped file. Pages come as they are read, so a model larger than memory can be opened.
#[derive(Debug)]
pub struct MappedFile {
    name: String,
    map: Mmap,
}

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// It is not there or cannot be read.
    #[expect(unsafe_code, reason = "mapping a file is unsafe by nature; see below")]
    pub fn open(path: &Path) -> Result<Self, FilesError> {
        let io = |source| FilesError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        // SAFETY: the map is only read, and bytes are copied out before they are looked at, so a
        // file another program changes meanwhile gives other bytes and no other harm. One that is
        // cut short ends this process by a signal, as with every program that maps its models.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let name = path.file_name().map_or_else(
            || "model".into(),
            |name| name.to_string_lossy().into_owned(),
        );
        Ok(Self { name, map })
    }
}

impl ByteSource for MappedFile {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let bytes = from
            .checked_add(buf.len())
            .and_then(|end| self.map.get(from..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}
