//! Reference data of `tests/golden`, as sources the engine reads.

use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twoclock_core::weights::source::{ByteSource, ModelFiles};

/// A file of `tests/golden`.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(path)
}

/// Its bytes.
///
/// # Panics
/// When it is not there.
pub fn golden_bytes(path: &str) -> Arc<dyn ByteSource> {
    let bytes = std::fs::read(golden(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    Arc::new((path.to_owned(), bytes))
}

/// A directory of `tests/golden` as a model's files, with a `config.json` of choice.
#[derive(Debug)]
pub struct GoldenDir {
    /// Below `tests/golden`.
    pub dir: &'static str,
    /// The file that stands for `config.json`.
    pub config: &'static str,
}

impl ModelFiles for GoldenDir {
    fn name(&self) -> &str {
        self.dir
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        let name = if file == "config.json" {
            self.config
        } else {
            file
        };
        match std::fs::read(golden(self.dir).join(name)) {
            Ok(bytes) => Ok(Some(Arc::new((file.to_owned(), bytes)))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// A model's files in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(pub BTreeMap<String, Vec<u8>>);

impl ModelFiles for MemoryFiles {
    fn name(&self) -> &str {
        "memory"
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        let bytes = self.0.get(file).cloned();
        Ok(bytes.map(|bytes| -> Arc<dyn ByteSource> { Arc::new((file.to_owned(), bytes)) }))
    }
}

/// What a reference implementation computed for one checkpoint: for each of three prompts its
/// ids, logits `[n][vocab]` and a greedy continuation with the gap between the two best logits.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Prompt ids.
    pub input_ids: Vec<u32>,
    /// f32 `[n][vocab]`.
    pub logits: Vec<f32>,
    /// Greedy continuation.
    pub greedy: Vec<u32>,
}

impl Expected {
    /// Reads `expected/NAME.safetensors`.
    ///
    /// # Panics
    /// When the file is not what the golden README says.
    pub fn read(name: &str) -> Vec<Self> {
        let path = golden("expected").join(format!("{name}.safetensors"));
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = SafeTensors::deserialize(&bytes).expect("safetensors");
        let words = |key: String| -> Vec<u32> {
            bytemuck::pod_collect_to_vec(file.tensor(&key).expect("a tensor").data())
        };
        (0..3)
            .map(|i| Self {
                input_ids: words(format!("input_ids.{i}")),
                logits: words(format!("logits.{i}"))
                    .into_iter()
                    .map(f32::from_bits)
                    .collect(),
                greedy: words(format!("greedy.{i}")),
            })
            .collect()
    }
}
