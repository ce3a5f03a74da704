//! Element types of stored tensors that the engine computes with: their names and their sizes in a
//! file. What a block means is in [`block`](super::block), how a device stores it in
//! [`repack`](super::repack).

use std::fmt;

/// How a tensor's elements are stored in a file, row by row.
///
/// The quantized types are ggml's: a block of consecutive elements of a row shares scales. Formulas
/// are of a decoded element; q is its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single.
    F32,
    /// IEEE 754 half.
    F16,
    /// The upper half of a single.
    BF16,
    /// 32: f16 scale, signed bytes: `d · q`.
    Q8_0,
    /// 32: f16 scale, 4 bits: `d · (q − 8)`; the low nibbles are elements 0–15, the high 16–31.
    Q4_0,
    /// 32: f16 scale and minimum, 4 bits: `d · q + m`; nibbles as in `Q4_0`.
    Q4_1,
    /// 32: f16 scale, 4 bits and a plane of fifth bits: `d · (q − 16)`.
    Q5_0,
    /// 32: as `Q5_0` with an f16 minimum: `d · q + m`.
    Q5_1,
    /// 256: 2 bits, 4-bit scales and minima of 16 elements: `d · s · q − dmin · m`.
    Q2K,
    /// 256: 3 bits, 6-bit scales of 16 elements: `d · (s − 32) · (q − 4)`.
    Q3K,
    /// 256: 4 bits, 6-bit scales and minima of 32 elements: `d · s · q − dmin · m`.
    Q4K,
    /// 256: 5 bits, as `Q4K`.
    Q5K,
    /// 256: 6 bits, signed 8-bit scales of 16 elements: `d · s · (q − 32)`.
    Q6K,
    /// 32: f16 scale, 4-bit indices of a table of 16 signed bytes: `d · table[q]`.
    Iq4Nl,
    /// 256: the table of `Iq4Nl`, 6-bit scales of 32 elements: `d · (s − 32) · table[q]`.
    Iq4Xs,
    /// 32: a power of two and E2M1 floats, OCP Microscaling: `2^(e − 127) · e2m1[q]`.
    Mxfp4,
}

impl DType {
    /// Every type, in the order an error message lists them.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
    ];

    /// Name as the field writes it, elements a block (1 where there are no blocks), bytes a block.
    const fn entry(self) -> (&'static str, usize, usize) {
        match self {
            Self::F32 => ("F32", 1, 4),
            Self::F16 => ("F16", 1, 2),
            Self::BF16 => ("BF16", 1, 2),
            Self::Q8_0 => ("Q8_0", 32, 34),
            Self::Q4_0 => ("Q4_0", 32, 18),
            Self::Q4_1 => ("Q4_1", 32, 20),
            Self::Q5_0 => ("Q5_0", 32, 22),
            Self::Q5_1 => ("Q5_1", 32, 24),
            Self::Q2K => ("Q2_K", 256, 84),
            Self::Q3K => ("Q3_K", 256, 110),
            Self::Q4K => ("Q4_K", 256, 144),
            Self::Q5K => ("Q5_K", 256, 176),
            Self::Q6K => ("Q6_K", 256, 210),
            Self::Iq4Nl => ("IQ4_NL", 32, 18),
            Self::Iq4Xs => ("IQ4_XS", 256, 136),
            Self::Mxfp4 => ("MXFP4", 32, 17),
        }
    }

    /// Elements a block holds; 1 where there are no blocks.
    pub const fn block_elements(self) -> usize {
        self.entry().1
    }

    /// Bytes a block takes.
    pub const fn block_bytes(self) -> usize {
        self.entry().2
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
        self.entry().0
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
        assert_eq!(DType::Q6K.row_bytes(512), Some(420));
        assert_eq!(DType::Q6K.row_bytes(320), None);
        assert_eq!(DType::BF16.row_bytes(3), Some(6));
        assert_eq!(DType::F32.row_bytes(usize::MAX), None);
    }
}
