//! Weights: sources of bytes, the file formats, and what a model loads from.
//!
//! `source` gives bytes; `gguf` and `safetensors` read headers; `block` says what quantized bytes
//! mean; `config_gguf` and `config_hf`, with what each of `families` adds, turn headers into a
//! [`ModelConfig`]; [`text_assets`] has what they say about text;
//! [`checkpoint`] joins it all under Hugging Face names.
//! Nothing here knows a device. Every parser is bounded: a length found in a file is compared with
//! the bytes that are left before anything is allocated for it.

use std::io;

use crate::config::ModelConfig;
use thiserror::Error;

pub mod block;
pub mod checkpoint;
mod config_gguf;
mod config_hf;
pub mod dtype;
pub mod dummy;
mod families;
mod fields;
pub mod generation;
pub mod gguf;
mod keys;
pub mod names;
mod narrowed;
pub mod pooling;
pub mod quantize;
pub mod repack;
pub mod safetensors;
pub mod source;
pub mod tensor;
pub mod text_assets;

pub use checkpoint::Checkpoint;
pub use dtype::DType;
pub use generation::GenerationDefaults;
pub use narrowed::Layers;
pub use pooling::PoolingDefaults;
pub use quantize::Quantization;
pub use source::{ByteSource, ModelFiles};
pub use tensor::TensorInfo;

/// The shape of a model by its `config.json` alone.
///
/// # Errors
/// [`WeightsError`], naming the field.
pub fn model_config_of_json(config: &serde_json::Value) -> Result<ModelConfig, WeightsError> {
    config_hf::model_config(config, None)
}

/// Why a model file cannot be used.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// The host could not deliver bytes.
    #[error("{file}: cannot read {what}: {source}; check that the file is complete and readable")]
    Read {
        /// File.
        file: String,
        /// What was being read.
        what: String,
        /// What the host said.
        source: io::Error,
    },
    /// The bytes are not what the format says.
    #[error("{file}: {field} is {found}, but {expected}")]
    Malformed {
        /// File.
        file: String,
        /// Field, key or tensor.
        field: String,
        /// What the file holds.
        found: String,
        /// What the format asks for, or what to do.
        expected: String,
    },
    /// A field that must be there is not.
    #[error("{file}: {field} is missing; {remedy}")]
    MissingField {
        /// File.
        file: String,
        /// Field or key.
        field: String,
        /// What to do.
        remedy: String,
    },
    /// A file that must be there is not.
    #[error("{file} is missing; {remedy}")]
    MissingFile {
        /// File.
        file: String,
        /// What to do.
        remedy: String,
    },
    /// The file is sound, but asks for something the engine does not do.
    #[error("{file}: {field} is {found}, which is not supported; supported: {supported}")]
    Unsupported {
        /// File.
        file: String,
        /// Field, key or tensor.
        field: String,
        /// What the file holds.
        found: String,
        /// What the engine does.
        supported: String,
    },
    /// The configuration contradicts itself.
    #[error("{file}: {source}")]
    Config {
        /// File.
        file: String,
        /// The field.
        source: crate::config::ConfigError,
    },
    /// A tensor the model needs is not in the files.
    #[error("{file}: tensor {tensor} is missing; the file is incomplete or of another model")]
    MissingTensor {
        /// File or directory.
        file: String,
        /// Hugging Face name.
        tensor: String,
    },
    /// A tensor's shape contradicts the configuration.
    #[error(
        "{file}: tensor {tensor} has shape {found:?}, but the configuration asks for {expected:?}"
    )]
    Shape {
        /// File.
        file: String,
        /// Hugging Face name.
        tensor: String,
        /// Shape in the file, rows first.
        found: Vec<usize>,
        /// Shape of the configuration, rows first.
        expected: Vec<usize>,
    },
    /// Weights that should be quantized on the way already are.
    #[error(
        "{file}: tensor {tensor} is {dtype} already, and quantizing it again would only lose; load it as it is, or take a file in F32, F16 or BF16"
    )]
    AlreadyQuantized {
        /// File.
        file: String,
        /// Hugging Face name.
        tensor: String,
        /// Its type in the file.
        dtype: DType,
    },
    /// A reader was asked for rows the tensor does not have.
    #[error("tensor {tensor}: rows {start}..{end} were asked for, but it has {rows}")]
    Rows {
        /// Hugging Face name.
        tensor: String,
        /// First row asked for.
        start: usize,
        /// Row after the last asked for.
        end: usize,
        /// Rows there are.
        rows: usize,
    },
}

impl WeightsError {
    pub(crate) fn malformed(
        file: &str,
        field: impl Into<String>,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            file: file.to_owned(),
            field: field.into(),
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    pub(crate) fn unsupported(
        file: &str,
        field: impl Into<String>,
        found: impl ToString,
        supported: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            file: file.to_owned(),
            field: field.into(),
            found: found.to_string(),
            supported: supported.into(),
        }
    }
}
