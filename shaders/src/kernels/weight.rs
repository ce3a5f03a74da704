//! Weight matrices on a device: which formats there are and how a row is laid out in words. Knows
//! no file format and no kernel.
//!
//! A matrix is two windows, rows after rows: quants as chunks of 16 bytes, and scales as words. K is
//! padded with zero weights to a multiple of 32; 32 elements are a group, 4 groups a span (the last
//! may be short). Inside a row the pieces (chunks, and the scales of groups) are ordered
//! `[piece in span][span]`, so that neighbouring lanes that own neighbouring spans read neighbouring
//! words.

/// Elements of a group.
pub const GROUP: u32 = 32;

/// Groups of a span.
pub const SPAN_GROUPS: u32 = 4;

/// How a device stores weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// Singles; 8 chunks a group.
    F32,
    /// IEEE halves; 4 chunks a group, two elements a word, the first in the low half.
    F16,
    /// Upper halves of singles; as [`WeightFormat::F16`].
    BF16,
    /// `d · q`: signed bytes, 2 chunks a group; d as f16, two groups a word, the first in the low
    /// half, rows padded to whole words.
    Q8_0,
    /// `d · (q − 8)`: 4 bits, 1 chunk a group whose byte i holds element i (low) and i + 16; d as in
    /// [`WeightFormat::Q8_0`].
    Q4_0,
    /// `d · q + m`: 4 bits as in [`WeightFormat::Q4_0`]; a word a group, d in the low half as f16,
    /// m in the high.
    Q4_1,
}

impl WeightFormat {
    /// Every format.
    pub const ALL: &'static [Self] = &[
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
    ];

    /// The module that fills the `quant` slot.
    pub fn module(self) -> &'static str {
        match self {
            Self::F32 => "quant_f32",
            Self::F16 => "quant_f16",
            Self::BF16 => "quant_bf16",
            Self::Q8_0 => "quant_q8_0",
            Self::Q4_0 => "quant_q4_0",
            Self::Q4_1 => "quant_q4_1",
        }
    }

    /// The format whose module fills a slot.
    pub(crate) fn of_module(module: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.module() == module)
    }

    /// Chunks of 16 bytes a group.
    pub fn group_chunks(self) -> u32 {
        match self {
            Self::F32 => 8,
            Self::F16 | Self::BF16 => 4,
            Self::Q8_0 => 2,
            Self::Q4_0 | Self::Q4_1 => 1,
        }
    }

    /// Words of quants a row of `groups` groups takes.
    pub fn row_words(self, groups: u32) -> u32 {
        4 * self.group_chunks() * groups
    }

    /// Words of scales a row takes; 0 for the formats without.
    pub fn row_scale_words(self, groups: u32) -> u32 {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 0,
            Self::Q8_0 | Self::Q4_0 => groups.div_ceil(2),
            Self::Q4_1 => groups,
        }
    }

    /// Bytes a row takes, quants and scales.
    pub fn row_bytes(self, groups: u32) -> u64 {
        4 * u64::from(self.row_words(groups) + self.row_scale_words(groups))
    }
}

/// Where a piece of a row lies: `piece` counts inside its span (0 .. 4 · `group_pieces`).
pub fn span_order(groups: u32, group_pieces: u32, piece: u32, span: u32) -> u32 {
    piece * (groups / SPAN_GROUPS) + piece.min(group_pieces * (groups % SPAN_GROUPS)) + span
}

/// Where piece `piece` (0 .. `group_pieces`) of a group lies.
pub fn group_order(groups: u32, group_pieces: u32, group: u32, piece: u32) -> u32 {
    span_order(
        groups,
        group_pieces,
        group_pieces * (group % SPAN_GROUPS) + piece,
        group / SPAN_GROUPS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_row_is_a_permutation() {
        for groups in 1..40 {
            for pieces in [1, 2, 4, 8] {
                let mut places: Vec<u32> = (0..groups)
                    .flat_map(|g| (0..pieces).map(move |c| group_order(groups, pieces, g, c)))
                    .collect();
                places.sort_unstable();
                assert!(
                    places.into_iter().eq(0..groups * pieces),
                    "{groups} {pieces}"
                );
            }
        }
    }

    #[test]
    fn neighbouring_spans_are_neighbours() {
        // 10 groups: two whole spans and one of two groups.
        assert_eq!(group_order(10, 1, 0, 0), 0);
        assert_eq!(group_order(10, 1, 4, 0), 1);
        assert_eq!(group_order(10, 1, 8, 0), 2);
        assert_eq!(group_order(10, 1, 1, 0), 3);
        assert_eq!(group_order(10, 1, 2, 0), 6);
        assert_eq!(group_order(10, 1, 6, 0), 7);
        assert_eq!(group_order(10, 1, 3, 0), 8);
    }
}
