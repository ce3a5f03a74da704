//! What the data tests of this crate share: the golden folder and a model directory on disk or in
//! memory. Knows no format.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use twoclock_core::weights::Checkpoint;
use twoclock_core::weights::source::{ByteSource, ModelFiles};

pub fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(path)
}

pub fn read(path: &str) -> Vec<u8> {
    let path = golden(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&read(path)).unwrap()
}

pub fn memory(name: &str, bytes: Vec<u8>) -> Arc<dyn ByteSource> {
    Arc::new((name.to_owned(), bytes))
}

pub fn source(path: &str) -> Arc<dyn ByteSource> {
    memory(path, read(path))
}

/// Files in memory, so that a test can damage one.
#[derive(Clone, Default)]
pub struct MemoryFiles(pub BTreeMap<String, Vec<u8>>);

impl MemoryFiles {
    pub fn of(dir: &str) -> Self {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(golden(dir)).unwrap() {
            let entry = entry.unwrap();
            files.insert(
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            );
        }
        Self(files)
    }
}

impl ModelFiles for MemoryFiles {
    fn name(&self) -> &str {
        "memory"
    }

    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>> {
        Ok(self.0.get(file).map(|bytes| memory(file, bytes.clone())))
    }
}

/// Why a checkpoint was not accepted.
pub fn message(result: Result<Checkpoint, impl std::fmt::Display>) -> String {
    match result {
        Ok(_) => panic!("it was accepted"),
        Err(e) => e.to_string(),
    }
}

/// Replaces a text that occurs once, at equal length.
pub fn patched(path: &str, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = read(path);
    let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}
