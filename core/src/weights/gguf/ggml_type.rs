//! ggml's element types: numbers, names and block sizes, also of those the engine cannot compute
//! with, so that a file is checked whole and an error can name the type.

use crate::weights::DType;

/// An element type as GGUF numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GgmlType(u32);

/// Number, name, elements a block, bytes a block.
const TYPES: [(u32, &str, u64, u64); 35] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
];

impl GgmlType {
    /// The type of a number, if it is known.
    pub fn from_id(id: u32) -> Option<Self> {
        TYPES.iter().any(|t| t.0 == id).then_some(Self(id))
    }

    /// Its number.
    pub fn id(self) -> u32 {
        self.0
    }

    fn entry(self) -> (u32, &'static str, u64, u64) {
        *TYPES
            .iter()
            .find(|t| t.0 == self.0)
            .expect("only `from_id` makes one, and it looked the number up")
    }

    /// Name, as the field writes it.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// (elements, bytes) of a block.
    pub fn block(self) -> (u64, u64) {
        let (_, _, elements, bytes) = self.entry();
        (elements, bytes)
    }

    /// The type to compute with, if the engine has it.
    pub fn dtype(self) -> Option<DType> {
        let name = self.name();
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_the_types_computed_with() {
        for (id, name, elements, bytes) in TYPES {
            let ty = GgmlType::from_id(id).unwrap();
            assert_eq!(ty.block(), (elements, bytes));
            assert_eq!(ty.name(), name);
            if let Some(dtype) = ty.dtype() {
                assert_eq!(dtype.block_elements() as u64, elements);
                assert_eq!(dtype.block_bytes() as u64, bytes);
            }
        }
        let computed = TYPES.iter().filter(|t| GgmlType(t.0).dtype().is_some());
        assert_eq!(computed.count(), DType::ALL.len());
        assert!(GgmlType::from_id(4).is_none());
    }
}
