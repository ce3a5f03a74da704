//! What a model loads from: a configuration, tensors under their Hugging Face names, and what the
//! files say about text, whichever format they have. Knows no device and reads no tensor data until
//! it is asked for rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::generation::GenerationDefaults;
use super::gguf::Gguf;
use super::names::{
    ROPE_FACTORS, ROPE_FREQS, canonical, expected_tensors, fused, hf_name, is_derived, is_router,
};
use super::pooling::PoolingDefaults;
use super::safetensors::{open, open_if_there, read_directory};
use super::source::{ByteSource, ModelFiles, read_all};
use super::tensor::TensorInfo;
use super::text_assets::{hf_text, text_assets};
use super::{DType, Quantization, WeightsError, config_gguf, config_hf};
use crate::config::{ModelConfig, TextAssets};

/// Longest configuration file taken, bytes.
pub(super) const MAX_CONFIG: u64 = 1 << 20;

/// The container a checkpoint was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GGUF, with its version.
    Gguf {
        /// 2 or 3.
        version: u32,
        /// Files.
        parts: usize,
    },
    /// Safetensors, with the number of files.
    Safetensors {
        /// Files.
        shards: usize,
    },
    /// No file: random weights.
    Dummy,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gguf { version, parts: 1 } => write!(f, "GGUF v{version}"),
            Self::Gguf { version, parts } => write!(f, "GGUF v{version} ({parts} files)"),
            Self::Safetensors { shards: 1 } => f.write_str("safetensors"),
            Self::Safetensors { shards } => write!(f, "safetensors ({shards} files)"),
            Self::Dummy => f.write_str("random weights"),
        }
    }
}

/// What the tensors of one element type come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypeShare {
    /// The type.
    pub dtype: DType,
    /// Tensors of it.
    pub tensors: usize,
    /// Their elements.
    pub elements: u64,
    /// Their bytes in the file.
    pub bytes: u64,
}

/// What there is to say of a checkpoint without loading it.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointMetadata {
    /// Container.
    pub format: Format,
    /// Architecture as the file calls it.
    pub architecture: String,
    /// The model's name, if the file says it.
    pub name: Option<String>,
    /// Its licence, if the file says it.
    pub license: Option<String>,
    /// Elements of all tensors (a tied output projection counts once).
    pub parameters: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Element types, most bytes first.
    pub dtypes: Vec<DTypeShare>,
}

/// A model's files, read and checked up to the tensor data.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Shapes and arithmetic.
    pub config: ModelConfig,
    /// Tensors by Hugging Face name: exactly those the configuration asks for.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// Tokenizer and chat template.
    pub text: TextAssets,
    /// What its `generation_config.json` recommends for the draw of tokens.
    pub generation: GenerationDefaults,
    /// How its files have embeddings made of texts.
    pub pooling: PoolingDefaults,
    /// For whoever asks what this is.
    pub metadata: CheckpointMetadata,
}

impl Checkpoint {
    /// Reads the head of a GGUF file that holds a whole model.
    ///
    /// # Errors
    /// [`WeightsError`], naming file and field or tensor.
    pub fn from_gguf(source: Arc<dyn ByteSource>) -> Result<Self, WeightsError> {
        let gguf = Gguf::read(source)?;
        match gguf.num_parts()? {
            1 => Self::from_gguf_head(&gguf),
            parts => Err(WeightsError::unsupported(
                gguf.source.name(),
                "split.count",
                format!("{parts}: the file is a part of a model"),
                "parts of a model, with the others beside them in a folder",
            )),
        }
    }

    /// Reads the heads of a GGUF file and, where it is a part of a split model, of the other parts.
    ///
    /// # Errors
    /// [`WeightsError`], naming file and field or tensor; [`WeightsError::MissingFile`] for a part.
    pub fn from_gguf_parts(files: &dyn ModelFiles, file: &str) -> Result<Self, WeightsError> {
        Self::from_gguf_head(&Gguf::read_parts(files, file)?)
    }

    fn from_gguf_head(gguf: &Gguf) -> Result<Self, WeightsError> {
        let file = gguf.source.name();
        if gguf.tensors.is_empty() {
            return Err(WeightsError::unsupported(
                file,
                "the tensor count",
                "0: a vocabulary alone, which makes tokens of text and no model",
                "files with weights",
            ));
        }
        let config = config_gguf::model_config(gguf)?;
        let mut tensors = BTreeMap::new();
        for entry in &gguf.tensors {
            if entry.name == ROPE_FREQS || ROPE_FACTORS.contains(&entry.name.as_str()) {
                continue;
            }
            let name = hf_name(&entry.name, &config).ok_or_else(|| {
                let found = "no tensor that a model here has";
                WeightsError::unsupported(
                    file,
                    format!("tensor {}", entry.name),
                    found,
                    format!("the tensors of {:?} models", config.architecture),
                )
            })?;
            let tensor = TensorInfo {
                dtype: config_gguf::tensor_dtype(file, &entry.name, entry.ggml_type)?,
                shape: entry.shape.clone(),
                source: Arc::clone(&gguf.sources[entry.source]),
                offset: entry.offset,
                bytes: entry.bytes,
                quantization: None,
                name: name.clone(),
            };
            insert(&mut tensors, tensor, &config)?;
        }
        let string = |key: &str| {
            let value = gguf.metadata.get(key)?;
            value.as_str().map(str::to_owned)
        };
        let checkpoint = Self::new(
            file,
            config,
            tensors,
            text_assets(gguf)?,
            Format::Gguf {
                version: gguf.version,
                parts: gguf.sources.len(),
            },
            gguf.sources.iter().map(|source| source.len()).sum(),
            [
                string("general.architecture"),
                string("general.name"),
                string("general.license"),
            ],
        )?;
        Ok(Self {
            pooling: PoolingDefaults::gguf(gguf)?,
            ..checkpoint
        })
    }

    /// Reads `config.json`, `generation_config.json`, the tokenizer files and the headers of the
    /// safetensors of a Hugging Face directory.
    ///
    /// # Errors
    /// [`WeightsError`], naming file and field or tensor.
    pub fn from_hf(files: &dyn ModelFiles) -> Result<Self, WeightsError> {
        let config_source = open(
            files,
            config_hf::CONFIG,
            "a model directory holds it; give a GGUF file or a complete directory",
        )?;
        let config_json = parse_json(&*config_source, config_hf::CONFIG, MAX_CONFIG)?;
        const GENERATION: &str = "generation_config.json";
        let generation = match open_if_there(files, GENERATION)? {
            Some(source) => Some(parse_json(&*source, GENERATION, MAX_CONFIG)?),
            None => None,
        };
        let config = config_hf::model_config(
            &config_json,
            generation.as_ref().map(|value| (GENERATION, value)),
        )?;
        let found = read_directory(files)?;
        let mut tensors = BTreeMap::new();
        for (name, mut tensor) in found.tensors {
            if !is_derived(&name) {
                tensor.name = canonical(&name);
                insert(&mut tensors, tensor, &config)?;
            }
        }
        // A tied model may store the shared table a second time.
        if config.tie_word_embeddings {
            tensors.remove("lm_head.weight");
        }
        let string = |key: &str| config_json.get(key)?.as_str().map(str::to_owned);
        let checkpoint = Self::new(
            files.name(),
            config,
            tensors,
            hf_text(files)?,
            Format::Safetensors {
                shards: found.shards,
            },
            found.file_bytes,
            [string("model_type"), string("_name_or_path"), None],
        )?;
        let defaults = generation.map(|value| GenerationDefaults::read(GENERATION, &value));
        Ok(Self {
            generation: defaults.transpose()?.unwrap_or_default(),
            pooling: PoolingDefaults::hf(files)?,
            ..checkpoint
        })
    }

    pub(super) fn new(
        file: &str,
        config: ModelConfig,
        tensors: BTreeMap<String, TensorInfo>,
        text: TextAssets,
        format: Format,
        file_bytes: u64,
        [architecture, name, license]: [Option<String>; 3],
    ) -> Result<Self, WeightsError> {
        let mut expected = BTreeSet::new();
        for (name, shape) in expected_tensors(&config) {
            let tensor = find(&tensors, file, &name)?;
            if tensor.shape != shape {
                return Err(WeightsError::Shape {
                    file: tensor.source.name().to_owned(),
                    tensor: name,
                    found: tensor.shape.clone(),
                    expected: shape,
                });
            }
            expected.insert(name);
        }
        // A tensor left over would be a part of the model that is silently not computed.
        if let Some(extra) = tensors.keys().find(|name| !expected.contains(*name)) {
            return Err(WeightsError::unsupported(
                file,
                format!("tensor {extra}"),
                "beyond what the configuration describes",
                format!("the tensors of such a {:?} model", config.architecture),
            ));
        }
        let mut dtypes: Vec<DTypeShare> = Vec::new();
        for dtype in DType::ALL {
            let of_type = || tensors.values().filter(|t| t.dtype == dtype);
            if of_type().next().is_some() {
                dtypes.push(DTypeShare {
                    dtype,
                    tensors: of_type().count(),
                    elements: of_type().map(TensorInfo::elements).sum(),
                    bytes: of_type().map(|t| t.bytes).sum(),
                });
            }
        }
        dtypes.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        Ok(Self {
            metadata: CheckpointMetadata {
                format,
                architecture: architecture.unwrap_or_default(),
                name,
                license,
                parameters: tensors.values().map(TensorInfo::elements).sum(),
                file_bytes,
                dtypes,
            },
            config,
            tensors,
            text,
            generation: GenerationDefaults::default(),
            pooling: PoolingDefaults::default(),
        })
    }

    /// Has the matrices quantized as they are loaded, the embedding too: all whose rows are whole
    /// blocks of 32, but no router of experts, as a wrong choice costs more than its bytes.
    ///
    /// # Errors
    /// [`WeightsError::AlreadyQuantized`] where the files hold quantized matrices: rounding twice
    /// loses more than either.
    pub fn quantize(&mut self, quantization: Quantization) -> Result<(), WeightsError> {
        let matrix = |tensor: &&mut TensorInfo| tensor.shape.len() > 1;
        for tensor in self.tensors.values_mut().filter(matrix) {
            if tensor.dtype.is_quantized() {
                return Err(WeightsError::AlreadyQuantized {
                    file: tensor.source.name().to_owned(),
                    tensor: tensor.name.clone(),
                    dtype: tensor.dtype,
                });
            }
            let whole = quantization.dtype().row_bytes(tensor.cols()).is_some();
            if whole && !is_router(&tensor.name) {
                tensor.quantization = Some(quantization);
            }
        }
        Ok(())
    }

    /// A tensor by its Hugging Face name.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, WeightsError> {
        find(&self.tensors, "the model", name)
    }
}

/// Puts a tensor under its name, or the tensors it holds under theirs. Files may have several names
/// for one place in a model, but only one tensor for it.
fn insert(
    tensors: &mut BTreeMap<String, TensorInfo>,
    tensor: TensorInfo,
    config: &ModelConfig,
) -> Result<(), WeightsError> {
    let parts = match fused(&tensor.name, config) {
        None => vec![tensor],
        Some(parts) => tensor.split(&parts)?,
    };
    for part in parts {
        if let Some(other) = tensors.insert(part.name.clone(), part) {
            return Err(WeightsError::malformed(
                other.source.name(),
                format!("tensor {}", other.name),
                "there twice, under two names or fused and by itself",
                "a model has one",
            ));
        }
    }
    Ok(())
}

fn find<'a>(
    tensors: &'a BTreeMap<String, TensorInfo>,
    file: &str,
    name: &str,
) -> Result<&'a TensorInfo, WeightsError> {
    tensors
        .get(name)
        .ok_or_else(|| WeightsError::MissingTensor {
            file: file.to_owned(),
            tensor: name.to_owned(),
        })
}

/// A whole JSON file of at most so many bytes.
pub(super) fn parse_json(
    source: &dyn ByteSource,
    file: &str,
    most: u64,
) -> Result<Value, WeightsError> {
    serde_json::from_slice(&read_all(source, most)?)
        .map_err(|e| WeightsError::malformed(file, "the file", e, "it must be JSON"))
}
