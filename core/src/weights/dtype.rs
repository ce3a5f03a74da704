//! Element types of stored tensors that the engine computes with: their names and their sizes in a
//! file. Knows nothing of how a device stores them.

use std::fmt;

/// How a tensor's elements are stored in a file, row by row.
///
/// The quantized types are ggml's: a block of 32 consecutive elements of a row shares one f16
/// scale (and, for `Q4_1`, one f16 minimum).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single.
    F32,
    /// IEEE 754 half.
    F16,
    /// The upper half of a single.
    BF16,
    /// f16 scale, 32 × i8: `d · q`.
    Q8_0,
    /// f16 scale, 32 × 4 bits: `d · (q − 8)`; the low nibbles are elements 0–15, the high 16–31.
    Q4_0,
    /// f16 scale and minimum, 32 × 4 bits: `d · q + m`; nibbles as in `Q4_0`.
    Q4_1,
}

impl DType {
    /// Every type, in the order an error message lists them.
    pub const ALL: [Self; 6] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
    ];

    /// Elements a block holds; 1 where there are no blocks.
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
        }
    }

    /// Bytes a block takes.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
        }
    }

    /// Bytes of a row of `cols` elements, or `None` where `cols` is no whole number of blocks or
    /// the size overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_elements()) {
            return None;
        }
        (cols / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Whether elements share scales.
    pub const fn is_quantized(self) -> bool {
        self.block_elements() > 1
    }

    /// Name, as the field writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
        }
    }

    /// All names, for error messages.
    pub(crate) fn supported() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(DType::Q4_1.row_bytes(64), Some(40));
        assert_eq!(DType::Q8_0.row_bytes(33), None);
        assert_eq!(DType::BF16.row_bytes(3), Some(6));
        assert_eq!(DType::F32.row_bytes(usize::MAX), None);
    }
}
