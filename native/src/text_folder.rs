//! A tokenizer without its model: a `tokenizer.json`, with what lies beside it. Knows no format.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twoclock_core::weights::{ByteSource, ModelFiles};

use crate::files::{Folder, ModelFile};

/// Files about text in a folder, of which the tokenizer may have another name.
#[derive(Debug)]
pub struct TextFolder {
    folder: Folder,
    tokenizer: PathBuf,
}

impl TextFolder {
    /// What lies at a path, if it is a JSON file, or a folder with `tokenizer.json`.
    pub fn at(path: &Path) -> Option<Self> {
        let is_json = |path: &Path| {
            let extension = path.extension();
            path.is_file() && extension.is_some_and(|ext| ext.eq_ignore_ascii_case("json"))
        };
        let (folder, tokenizer) = if is_json(path) {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")), path.to_owned())
        } else {
            (path, path.join("tokenizer.json"))
        };
        is_json(&tokenizer).then(|| Self {
            folder: Folder::new(folder),
            tokenizer,
        })
    }
}

impl ModelFiles for TextFolder {
    fn name(&self) -> &str {
        self.folder.name()
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        if file != "tokenizer.json" {
            return self.folder.open(file);
        }
        let file = ModelFile::open(&self.tokenizer).map_err(io::Error::other)?;
        Ok(Some(Arc::new(file)))
    }
}
