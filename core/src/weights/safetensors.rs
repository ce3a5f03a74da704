//! The safetensors container: one file's header, and the index that joins sharded files. Knows no
//! model. Format: <https://huggingface.co/docs/safetensors/index#format>.

use std::collections::BTreeMap;
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata};
use serde::Deserialize;

use super::source::{ByteSource, ModelFiles, read_all, read_vec};
use super::{DType, TensorInfo, WeightsError};

/// A model in one file.
const SINGLE: &str = "model.safetensors";
/// Where a model in several files says which tensor is where.
const INDEX: &str = "model.safetensors.index.json";
/// Longest header taken, bytes: beyond any model (50,000 tensors take about 6 MB) and far below the
/// format's own limit, at which reading takes a gigabyte.
const MAX_HEADER: u64 = 32 << 20;
/// Longest index taken, bytes.
const MAX_INDEX: u64 = 64 << 20;

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// All tensors of a directory by name, the number of files, and their bytes.
pub(super) struct Tensors {
    pub(super) tensors: BTreeMap<String, TensorInfo>,
    pub(super) shards: usize,
    pub(super) file_bytes: u64,
}

/// Opens a file that must be there.
pub(super) fn open(
    files: &dyn ModelFiles,
    file: &str,
    remedy: &str,
) -> Result<Arc<dyn ByteSource>, WeightsError> {
    open_if_there(files, file)?.ok_or_else(|| WeightsError::MissingFile {
        file: format!("{}/{file}", files.name()),
        remedy: remedy.to_owned(),
    })
}

/// Opens a file that may be there.
pub(super) fn open_if_there(
    files: &dyn ModelFiles,
    file: &str,
) -> Result<Option<Arc<dyn ByteSource>>, WeightsError> {
    files.open(file).map_err(|source| WeightsError::Read {
        file: format!("{}/{file}", files.name()),
        what: "the file".to_owned(),
        source,
    })
}

/// The tensors of `model.safetensors`, or of the shards `model.safetensors.index.json` lists.
pub(super) fn read_directory(files: &dyn ModelFiles) -> Result<Tensors, WeightsError> {
    if let Some(source) = open_if_there(files, SINGLE)? {
        return Ok(Tensors {
            shards: 1,
            file_bytes: source.len(),
            tensors: read_file(&source)?,
        });
    }
    let index = open(
        files,
        INDEX,
        "a model directory holds model.safetensors, or this index and its shards",
    )?;
    let index: Index = serde_json::from_slice(&read_all(&*index, MAX_INDEX)?)
        .map_err(|e| WeightsError::malformed(INDEX, "the file", e, "it must hold a weight_map"))?;

    let mut shards: BTreeMap<&str, BTreeMap<String, TensorInfo>> = BTreeMap::new();
    let mut all = Tensors {
        tensors: BTreeMap::new(),
        shards: 0,
        file_bytes: 0,
    };
    for (name, shard) in &index.weight_map {
        if !shards.contains_key(shard.as_str()) {
            // Names come from a foreign file and must not leave the directory.
            if shard.is_empty() || shard.contains(['/', '\\', ':', '\0']) || shard.starts_with('.')
            {
                return Err(WeightsError::malformed(
                    INDEX,
                    format!("weight_map.{name}"),
                    format!("{shard:?}"),
                    "it must be a plain file name",
                ));
            }
            let source = open(files, shard, "a shard the index lists; download it again")?;
            all.file_bytes += source.len();
            shards.insert(shard, read_file(&source)?);
        }
        let tensor = shards
            .get_mut(shard.as_str())
            .and_then(|tensors| tensors.remove(name));
        let Some(tensor) = tensor else {
            return Err(WeightsError::MissingTensor {
                file: shard.clone(),
                tensor: name.clone(),
            });
        };
        all.tensors.insert(name.clone(), tensor);
    }
    all.shards = shards.len();
    Ok(all)
}

/// The tensors of one file.
pub(super) fn read_file(
    source: &Arc<dyn ByteSource>,
) -> Result<BTreeMap<String, TensorInfo>, WeightsError> {
    let file = source.name();
    let mut length = [0; 8];
    length.copy_from_slice(&read_vec(&**source, 0, 8, "the header's length")?);
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > source.len().saturating_sub(8) {
        return Err(WeightsError::malformed(
            file,
            "the header's length",
            length,
            format!(
                "at most {MAX_HEADER} is taken, and the file has {} bytes; is it safetensors, and complete?",
                source.len()
            ),
        ));
    }
    let header = read_vec(&**source, 8, length, "the header")?;
    // Parsing checks that offsets follow each other without gap and fit dtypes and shapes.
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|e| {
        WeightsError::malformed(
            file,
            "the header",
            format!("wrong ({e})"),
            "it must be a safetensors header; download the file again",
        )
    })?;
    let data = 8 + length;
    if data.checked_add(metadata.data_len() as u64) != Some(source.len()) {
        return Err(WeightsError::malformed(
            file,
            "the file's length",
            source.len(),
            format!(
                "the header describes {} bytes after the first {data}; the file is incomplete",
                metadata.data_len()
            ),
        ));
    }
    let mut out = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let field = || format!("tensor {name}");
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => {
                return Err(WeightsError::unsupported(
                    file,
                    field(),
                    format!("of type {other:?}"),
                    "F32, F16, BF16 in safetensors",
                ));
            }
        };
        if info.shape.is_empty() || info.shape.contains(&0) {
            return Err(WeightsError::malformed(
                file,
                field(),
                format!("of shape {:?}", info.shape),
                "weights have at least one dimension and none of 0",
            ));
        }
        let tensor = TensorInfo {
            name: name.clone(),
            dtype,
            shape: info.shape.clone(),
            source: Arc::clone(source),
            offset: data + start as u64,
            bytes: (end - start) as u64,
            quantization: None,
        };
        out.insert(name, tensor);
    }
    Ok(out)
}
