//! What was measured of an adapter, on disk beside its compiled pipelines. Owns the file's form; a file
//! that cannot be used counts as none.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use thiserror::Error;
use twoclock_shaders::gpu::AdapterSummary;
use twoclock_shaders::tuning::Tuning;

use crate::whole_file;

/// A field of [`Tuning`] and its value.
pub type Choice = (&'static str, u32);

/// Form of the file.
const VERSION: u64 = 2;
/// More is no such file.
const MOST_BYTES: u64 = 1 << 16;

/// Why a file says nothing.
#[derive(Debug, Error)]
pub enum TuningError {
    /// It cannot be read or written.
    #[error(
        "{path}, which keeps the choices for this adapter: {source}; remove it, or name another folder by TWOCLOCK_HOME",
        path = path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not in the form this program writes.
    #[error("{path}: {what}; `twoclock tune` writes it anew", path = path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Where the choices for an adapter are kept, by its [`AdapterSummary::cache_key`].
pub fn path(caches: &Path, adapter_key: &str) -> PathBuf {
    caches.join(format!("{adapter_key}.tuning.json"))
}

/// How an adapter is used: as was measured, and as is usual for it where nothing was, or where that cannot be
/// read.
pub fn of(caches: &Path, adapter: &AdapterSummary) -> Tuning {
    let usual = adapter.caps.tuning;
    let kept = read(&path(caches, &adapter.cache_key), usual);
    kept.unwrap_or_else(|e| {
        tracing::warn!("the defaults hold: {e}");
        None
    })
    .unwrap_or(usual)
}

/// The choices in a file, and the usual ones for what it does not name; `None` where there is none.
///
/// # Errors
/// [`TuningError`].
pub fn read(path: &Path, usual: Tuning) -> Result<Option<Tuning>, TuningError> {
    let io = |source| TuningError::Io {
        path: path.to_owned(),
        source,
    };
    let bytes = match whole_file::read(path, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(e)),
    };
    let form = |what: String| TuningError::Form {
        path: path.to_owned(),
        what,
    };
    let value: Value = serde_json::from_slice(&bytes).map_err(|e| form(e.to_string()))?;
    if value["version"] != VERSION {
        return Err(form(format!(
            "version {} is not {VERSION}",
            value["version"]
        )));
    }
    let fields = value["tuning"]
        .as_object()
        .ok_or_else(|| form("there is no \"tuning\"".into()))?;
    let mut tuning = usual;
    for (field, value) in fields {
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        tuning = number
            .and_then(|n| tuning.with(field, n))
            .ok_or_else(|| form(format!("{field} cannot be {value}")))?;
    }
    Ok(Some(tuning))
}

/// Writes choices that were measured, whole or not at all.
///
/// # Errors
/// [`TuningError::Io`].
pub fn write(path: &Path, adapter: &str, measured: &[Choice]) -> Result<(), TuningError> {
    let text = format!("{:#}\n", as_json(adapter, measured));
    whole_file::write(path, text.as_bytes()).map_err(|source| TuningError::Io {
        path: path.to_owned(),
        source,
    })
}

/// The file's form.
pub fn as_json(adapter: &str, measured: &[Choice]) -> Value {
    let fields: Map<_, _> = measured
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    json!({"version": VERSION, "adapter": adapter, "tuning": fields})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_not_in_form_says_so() {
        let folder = std::env::temp_dir().join(format!("twoclock-tuning-{}", std::process::id()));
        let file = path(&folder, "vulkan-some-adapter");
        let usual = Tuning::default().with("tile_tokens", 64).expect("fine");
        assert!(read(&file, usual).expect("none").is_none());
        write(&file, "Some adapter", &[("gemv_tokens", 4)]).expect("writes");
        // What was not measured stays as is usual for the device.
        let tuning = usual.with("gemv_tokens", 4).expect("fine");
        assert_eq!(read(&file, usual).expect("reads"), Some(tuning));
        for (text, what) in [
            ("{", "EOF"),
            ("{\"version\": 7}", "version 7"),
            ("{\"version\": 1, \"tuning\": {}}", "version 1 is not 2"),
            ("{\"version\": 2}", "no \"tuning\""),
            (
                "{\"version\": 2, \"tuning\": {\"rows\": 3}}",
                "rows cannot be 3",
            ),
            (
                "{\"version\": 2, \"tuning\": {\"row_tokens\": -1}}",
                "row_tokens cannot be -1",
            ),
        ] {
            std::fs::write(&file, text).expect("writes");
            let error = read(&file, usual).expect_err(text).to_string();
            assert!(
                error.contains(what) && error.contains("twoclock tune"),
                "{error}"
            );
        }
        std::fs::remove_dir_all(&folder).expect("cleans up");
    }
}
