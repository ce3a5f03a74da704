//! One tensor of a model's files: where its bytes are, what they mean, and how its rows are read. Knows
//! no format of a file and no device.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::block::dequantize;
use super::source::{ByteSource, read_vec};
use super::{DType, Quantization, WeightsError};

/// Where a tensor's bytes are and what they mean.
#[derive(Clone)]
pub struct TensorInfo {
    /// Hugging Face name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Element type in the file.
    pub dtype: DType,
    /// Shape, row-major: `[out_features, in_features]` for a linear layer's weight.
    pub shape: Vec<usize>,
    /// The file.
    pub source: Arc<dyn ByteSource>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// What its elements are turned into on the way to a device; `None` leaves them as they are.
    pub quantization: Option<Quantization>,
}

impl fmt::Debug for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorInfo")
            .field("name", &self.name)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("file", &self.source.name())
            .field("offset", &self.offset)
            .field("bytes", &self.bytes)
            .field("quantization", &self.quantization)
            .finish()
    }
}

impl TensorInfo {
    /// Rows: all dimensions but the last, multiplied. A vector is one row.
    pub fn rows(&self) -> usize {
        self.shape
            .split_last()
            .map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&d| d as u64).product()
    }

    /// Tensors that are its rows one after the other, by name and number of rows.
    pub(super) fn split(&self, parts: &[(String, usize)]) -> Result<Vec<Self>, WeightsError> {
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        if self.shape.len() < 2 || rows != self.rows() {
            return Err(WeightsError::Shape {
                file: self.source.name().to_owned(),
                tensor: self.name.clone(),
                found: self.shape.clone(),
                expected: vec![rows, self.cols()],
            });
        }
        // A tensor's bytes are its rows one after the other; the readers checked the product.
        let row_bytes = self.bytes / rows.max(1) as u64;
        let mut offset = self.offset;
        let parts = parts.iter().map(|(name, rows)| {
            let bytes = row_bytes * *rows as u64;
            offset += bytes;
            Self {
                name: name.clone(),
                shape: vec![*rows, self.cols()],
                offset: offset - bytes,
                bytes,
                source: Arc::clone(&self.source),
                ..*self
            }
        });
        Ok(parts.collect())
    }

    /// The bytes of some rows, as they are in the file: `rows.len() · dtype.row_bytes(cols)`.
    ///
    /// # Errors
    /// [`WeightsError::Rows`] for rows the tensor does not have, [`WeightsError::Read`] where the
    /// host fails.
    pub fn read_rows(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let total = self.rows();
        if rows.start > rows.end || rows.end > total {
            return Err(WeightsError::Rows {
                tensor: self.name.clone(),
                start: rows.start,
                end: rows.end,
                rows: total,
            });
        }
        // A tensor's bytes are its rows one after the other; the readers checked the product.
        let row = self.bytes / total as u64;
        read_vec(
            &*self.source,
            self.offset + row * rows.start as u64,
            row * rows.len() as u64,
            &self.name,
        )
    }

    /// Element type of the rows that go to a device.
    pub fn loaded_dtype(&self) -> DType {
        self.quantization.map_or(self.dtype, Quantization::dtype)
    }

    /// Some rows as they go to a device: `rows.len() · loaded_dtype().row_bytes(cols)` bytes.
    ///
    /// # Errors
    /// Those of [`read_rows`](Self::read_rows).
    pub fn load_rows(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let bytes = self.read_rows(rows)?;
        match self.quantization {
            None => Ok(bytes),
            Some(quantization) => Ok(quantization.quantize(&self.widen(&bytes))),
        }
    }

    /// All elements, widened exactly. For norms and biases.
    ///
    /// # Errors
    /// [`WeightsError::Read`] where the host fails.
    pub fn read_f32(&self) -> Result<Vec<f32>, WeightsError> {
        Ok(self.widen(&self.read_rows(0..self.rows())?))
    }

    fn widen(&self, bytes: &[u8]) -> Vec<f32> {
        // The readers checked that the bytes are those of the elements.
        let blocks = bytes.len() / self.dtype.block_bytes();
        let mut values = vec![0.0; blocks * self.dtype.block_elements()];
        dequantize(self.dtype, bytes, &mut values);
        values
    }
}
