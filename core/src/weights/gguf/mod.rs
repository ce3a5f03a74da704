//! The GGUF container, versions 2 and 3, little-endian: header, metadata, tensor directory, and models
//! split over several files.
//!
//! Owns the layout and its checks; knows no architecture and no tokenizer. Reads the head of the
//! file only, through a window, and never the tensor data.
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::HashSet;
use std::sync::Arc;

use super::WeightsError;
use super::source::ByteSource;

mod ggml_type;
mod metadata;
mod reader;
mod split;

pub use ggml_type::GgmlType;
pub use metadata::{Array, Metadata, Value};
pub use split::PartName;

use reader::Reader;

/// Alignment where `general.alignment` is not given, bytes.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Largest alignment taken, bytes.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// ggml's tensors have one to four dimensions.
const MAX_DIMS: u32 = 4;
/// Longest tensor name taken, bytes (ggml itself writes fewer than 64).
const MAX_TENSOR_NAME: u64 = 256;
/// A tensor entry is at least a name length, a dimension count, one dimension, a type, an offset.
const MIN_TENSOR_ENTRY: u64 = 8 + 4 + 8 + 4 + 8;

/// One entry of the tensor directory.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTensor {
    /// Name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Shape, rows first (the file lists the innermost dimension first).
    pub shape: Vec<usize>,
    /// Element type.
    pub ggml_type: GgmlType,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Length, bytes.
    pub bytes: u64,
    /// Which of the [sources](Gguf::sources) holds it.
    pub source: usize,
}

/// The head of a GGUF file.
pub struct Gguf {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Keys and values, in the file's order.
    pub metadata: Metadata,
    /// Tensors, in the file's order.
    pub tensors: Vec<GgufTensor>,
    /// The file, the first of a split model.
    pub source: Arc<dyn ByteSource>,
    /// All files, in order.
    pub sources: Vec<Arc<dyn ByteSource>>,
}

impl Gguf {
    /// Reads and checks the head of one file, whether or not it is a part of a split model.
    ///
    /// # Errors
    /// [`WeightsError::Malformed`] where counts, lengths, types, shapes or offsets contradict the
    /// format or the file's length, where a name occurs twice, or where tensors overlap;
    /// [`WeightsError::Unsupported`] for another version; [`WeightsError::Read`] where the host
    /// fails.
    pub fn read(source: Arc<dyn ByteSource>) -> Result<Self, WeightsError> {
        let mut r = Reader::new(&*source);
        let file = source.name();
        if r.bytes::<4>("the magic")? != *b"GGUF" {
            return Err(WeightsError::malformed(
                file,
                "the magic",
                "not \"GGUF\"",
                "a GGUF file starts with these four bytes; is this another format?",
            ));
        }
        let version = r.u32("the version")?;
        if !matches!(version, 2 | 3) {
            let found = if matches!(version.swap_bytes(), 1..=3) {
                format!("{} in big-endian order", version.swap_bytes())
            } else {
                version.to_string()
            };
            return Err(WeightsError::unsupported(
                file,
                "the GGUF version",
                found,
                "2 and 3, little-endian; convert the file again with a current converter",
            ));
        }
        let num_tensors = r.u64("the tensor count")?;
        let num_keys = r.u64("the key count")?;
        r.expect_room(num_tensors, MIN_TENSOR_ENTRY, "the tensor count")?;
        let metadata = Metadata::read(&mut r, num_keys)?;

        let alignment = match metadata.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(value) => value
                .as_u64()
                .filter(|a| a.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(a))
                .ok_or_else(|| {
                    WeightsError::malformed(
                        file,
                        "general.alignment",
                        value,
                        format!("it must be a power of two from 8 to {MAX_ALIGNMENT}"),
                    )
                })?,
        };

        r.expect_room(num_tensors, MIN_TENSOR_ENTRY, "the tensor count")?;
        let mut tensors = Vec::new();
        let mut names = HashSet::new();
        for i in 0..num_tensors {
            let tensor = read_tensor(&mut r, i, alignment)?;
            if !names.insert(tensor.name.clone()) {
                return Err(WeightsError::malformed(
                    file,
                    format!("tensor {}", tensor.name),
                    "listed twice",
                    "every tensor has a name of its own",
                ));
            }
            tensors.push(tensor);
        }
        place(&mut tensors, r.position(), alignment, source.len(), file)?;
        Ok(Self {
            version,
            metadata,
            tensors,
            sources: vec![Arc::clone(&source)],
            source,
        })
    }
}

/// Reads one directory entry; its offset still counts from the start of the data.
fn read_tensor(r: &mut Reader<'_>, index: u64, alignment: u64) -> Result<GgufTensor, WeightsError> {
    let name = r.string(MAX_TENSOR_NAME, &format!("the name of tensor {index}"))?;
    let field = format!("tensor {name}");
    let num_dims = r.u32(&field)?;
    if !(1..=MAX_DIMS).contains(&num_dims) {
        return Err(WeightsError::malformed(
            r.file(),
            field,
            format!("of {num_dims} dimensions"),
            format!("tensors have 1 to {MAX_DIMS}"),
        ));
    }
    let mut shape = Vec::new();
    let mut elements = 1_u64;
    for _ in 0..num_dims {
        let dim = r.u64(&field)?;
        elements = elements
            .checked_mul(dim)
            .filter(|&n| n > 0 && i64::try_from(n).is_ok())
            .ok_or_else(|| {
                WeightsError::malformed(
                    r.file(),
                    field.clone(),
                    format!("of a dimension {dim}"),
                    "dimensions must be above 0 and their product must not overflow",
                )
            })?;
        shape.push(usize::try_from(dim).map_err(|_| {
            WeightsError::malformed(
                r.file(),
                field.clone(),
                format!("of a dimension {dim}"),
                "this platform cannot address it",
            )
        })?);
    }
    shape.reverse();
    let type_id = r.u32(&field)?;
    let ggml_type = GgmlType::from_id(type_id).ok_or_else(|| {
        WeightsError::unsupported(
            r.file(),
            field.clone(),
            format!("of the ggml type number {type_id}"),
            super::DType::supported(),
        )
    })?;
    let cols = shape.last().map_or(0, |&c| c as u64);
    let (block_elements, block_bytes) = ggml_type.block();
    let bytes = (elements / block_elements).checked_mul(block_bytes);
    let (true, Some(bytes)) = (cols.is_multiple_of(block_elements), bytes) else {
        return Err(WeightsError::malformed(
            r.file(),
            field,
            format!("of type {} with rows of {cols}", ggml_type.name()),
            format!("rows of this type are whole blocks of {block_elements}"),
        ));
    };
    let offset = r.u64(&field)?;
    if !offset.is_multiple_of(alignment) {
        return Err(WeightsError::malformed(
            r.file(),
            field,
            format!("at offset {offset}"),
            format!("offsets must be multiples of the alignment {alignment}"),
        ));
    }
    Ok(GgufTensor {
        name,
        shape,
        ggml_type,
        offset,
        bytes,
        source: 0,
    })
}

/// Turns offsets into positions in the file; every tensor lies inside it and none in another.
fn place(
    tensors: &mut [GgufTensor],
    head: u64,
    alignment: u64,
    len: u64,
    file: &str,
) -> Result<(), WeightsError> {
    let data = head.next_multiple_of(alignment);
    for tensor in tensors.iter_mut() {
        let start = data.checked_add(tensor.offset);
        let end = start.and_then(|s| s.checked_add(tensor.bytes));
        let (Some(start), true) = (start, end.is_some_and(|end| end <= len)) else {
            return Err(WeightsError::malformed(
                file,
                format!("tensor {}", tensor.name),
                format!(
                    "{} bytes at data offset {}, and the data starts at {data}",
                    tensor.bytes, tensor.offset
                ),
                format!("the file ends at {len}; it is cut short, download it again"),
            ));
        };
        tensor.offset = start;
    }
    let mut order: Vec<&GgufTensor> = tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if let [a, b] = pair
            && a.offset + a.bytes > b.offset
        {
            return Err(WeightsError::malformed(
                file,
                format!("tensor {}", b.name),
                format!("laid over tensor {}", a.name),
                "tensors must not overlap",
            ));
        }
    }
    Ok(())
}
