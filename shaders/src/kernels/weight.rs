//! Weight matrices on a device: which formats there are and how a row is laid out in words. Knows
//! no file format and no kernel.
//!
//! A matrix is two windows, rows after rows: quants as chunks of 16 bytes, and scales as words. K is
//! padded with zero weights to a multiple of 32; 32 elements are a group, 4 groups a span (the last
//! may be short). Inside a row the pieces (chunks, and what the groups have in the scale stream) are
//! ordered `[piece in span][span]`, so that neighbouring lanes that own neighbouring spans read
//! neighbouring words.
//!
//! A row's scale stream is the planes of its codes' upper bits, a word or two a group, then scales:
//! of groups in the order above, then of super-blocks of 8 groups in their own. Formats with
//! super-blocks have whole ones in every row.

use crate::kernel::KernelKey;

/// Elements of a group.
pub const GROUP: u32 = 32;

/// Groups of a span.
pub const SPAN_GROUPS: u32 = 4;

/// Groups of a super-block.
pub const SUPER_GROUPS: u32 = 8;

/// How a device stores weights.
///
/// "Nibbles" are one chunk a group whose byte i holds element i (low) and i + 16. A "plane" of one
/// bit is a word a group, element 4 j + c at bit 8 c + j; of two bits two words, element
/// 16 h + 4 j + c at bits 8 c + 2 j of word h.
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
    /// `d · (q − 8)`: nibbles; d as in [`WeightFormat::Q8_0`].
    Q4_0,
    /// `d · q + m`: nibbles; a word a group, d in the low half as f16, m in the high.
    Q4_1,
    /// `d · (q − 16)`: nibbles and a plane of fifth bits; d as in [`WeightFormat::Q8_0`].
    Q5_0,
    /// `d · q + m`: as [`WeightFormat::Q5_0`]; d and m as in [`WeightFormat::Q4_1`].
    Q5_1,
    /// `d · s · q − dmin · m`: a chunk two groups, as two planes of two bits; for the halves of a
    /// group a byte each, s in the low four bits and m in the high; d and dmin as f16, a word a
    /// super-block.
    Q2K,
    /// `d · s · (q − 4)`: chunks as in [`WeightFormat::Q2K`] and a plane of third bits; s as signed
    /// bytes for the halves of a group; d as f16, two super-blocks a word.
    Q3K,
    /// `d · s · q − dmin · m`: nibbles; s and m as bytes, two groups a word; d and dmin as f16, a
    /// word a super-block.
    Q4K,
    /// As [`WeightFormat::Q4K`] with a plane of fifth bits.
    Q5K,
    /// `d · s · (q − 32)`: nibbles and a plane of two bits; s and d as in [`WeightFormat::Q3K`].
    Q6K,
    /// `d · table[q]`: nibbles; d as in [`WeightFormat::Q8_0`].
    Iq4Nl,
    /// `d · s · table[q]`: nibbles; s as signed bytes, a span a word; d as f16, two super-blocks a
    /// word.
    Iq4Xs,
    /// `2^(e − 128) · table[q]`: nibbles; e as bytes, a span a word.
    Mxfp4,
}

/// How a matmul takes codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// As singles, for inputs that are.
    Float,
    /// As singles that are whole numbers, for inputs that are too.
    Whole,
    /// As bytes, four a word.
    Packed,
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

    /// Name, as the field writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Iq4Nl => "IQ4_NL",
            Self::Iq4Xs => "IQ4_XS",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// The modules of the slots `codes` and `scale`.
    fn modules(self, arithmetic: Arithmetic) -> (&'static str, &'static str) {
        use Arithmetic::{Packed, Whole};
        match (self, arithmetic) {
            (Self::Q2K, Whole) => return ("codes_q2_k_scaled", "scale_q2_k"),
            (Self::Q2K, Packed) => return ("codes_q2_k_packed", "scale_q2_k"),
            (Self::Q3K, Packed) => return ("codes_q3_k_packed", "scale_halves_apart"),
            (Self::Q6K, Packed) => return ("codes_q6_k_packed", "scale_halves_apart"),
            _ => {}
        }
        let (codes, scale) = self.float_modules();
        let codes = match codes {
            _ if arithmetic != Packed => codes,
            "codes_i8" => "codes_i8_packed",
            "codes_u4" => "codes_u4_packed",
            "codes_u5" => "codes_u5_packed",
            "codes_table" => "codes_table_packed",
            weights => weights,
        };
        (codes, scale)
    }

    fn float_modules(self) -> (&'static str, &'static str) {
        match self {
            Self::F32 => ("codes_f32", "scale_none"),
            Self::F16 => ("codes_halves", "scale_none_f16"),
            Self::BF16 => ("codes_halves", "scale_none_bf16"),
            Self::Q8_0 => ("codes_i8", "scale_d"),
            Self::Q4_0 => ("codes_u4", "scale_d_zero"),
            Self::Q4_1 => ("codes_u4", "scale_dm"),
            Self::Q5_0 => ("codes_u5", "scale_d_zero"),
            Self::Q5_1 => ("codes_u5", "scale_dm"),
            Self::Q2K => ("codes_q2_k", "scale_none"),
            Self::Q3K => ("codes_q3_k", "scale_halves"),
            Self::Q4K => ("codes_u4", "scale_dm_super"),
            Self::Q5K => ("codes_u5", "scale_dm_super"),
            Self::Q6K => ("codes_q6_k", "scale_halves"),
            Self::Iq4Nl => ("codes_table", "scale_d"),
            Self::Iq4Xs => ("codes_table", "scale_d_super"),
            Self::Mxfp4 => ("codes_table", "scale_power"),
        }
    }

    /// Fills the slots `codes` and `scale` of a variant, and what their modules ask of the header.
    pub(crate) fn fill(self, key: KernelKey) -> KernelKey {
        self.fill_for(key, Arithmetic::Float)
    }

    /// Whether a group's products are dots of four codes a word.
    pub(crate) fn is_packed(self, arithmetic: Arithmetic) -> bool {
        let floats = matches!(self, Self::F32 | Self::F16 | Self::BF16);
        arithmetic == Arithmetic::Packed && !floats
    }

    /// Fills the slots that make up the chain: pieces of a group, their partial sum, what is known of
    /// the inputs, and how a group closes.
    pub(crate) fn fill_chain(self, key: KernelKey, arithmetic: Arithmetic) -> KernelKey {
        let halves = matches!(self, Self::Q2K | Self::Q3K | Self::Q6K);
        let (pieces, partial) = match self.is_packed(arithmetic) {
            true if halves => ("pieces_packed", "partial_packed_halves"),
            true => ("pieces_packed", "partial_packed"),
            false => ("pieces_singles", "partial_singles"),
        };
        let (sums, close) = match (self, arithmetic) {
            (_, Arithmetic::Float) => ("sums_f32", "close_f32"),
            (Self::F32 | Self::F16 | Self::BF16, _) => ("sums_int8", "close_int8_float"),
            (Self::Q2K, _) => ("sums_int8", "close_int8_q2_k"),
            (Self::Q3K | Self::Q6K, Arithmetic::Packed) => ("sums_int8", "close_int8_halves"),
            _ => ("sums_int8", "close_int8"),
        };
        key.module("pieces", pieces)
            .module("partial", partial)
            .module("sums", sums)
            .module("close", close)
    }

    /// As [`fill`](Self::fill), with codes as the arithmetic takes them.
    pub(crate) fn fill_for(self, key: KernelKey, arithmetic: Arithmetic) -> KernelKey {
        let (codes, scale) = self.modules(arithmetic);
        let key = key.module("codes", codes).module("scale", scale);
        match self {
            Self::Q4_0 => key.constant("ZERO", 8),
            Self::Q5_0 => key.constant("ZERO", 16),
            Self::Iq4Nl | Self::Iq4Xs | Self::Mxfp4 => ["TABLE_0", "TABLE_1", "TABLE_2", "TABLE_3"]
                .into_iter()
                .zip(table(self))
                .fold(key, |key, (name, word)| key.constant(name, word)),
            _ => key,
        }
    }

    /// The format a variant was filled with.
    ///
    /// # Panics
    /// When it was with none: keys are made by the kernel's own file.
    pub(crate) fn of_key(key: &KernelKey) -> Self {
        let filled = (key.slot("codes"), key.slot("scale"));
        Self::ALL
            .iter()
            .copied()
            .find(|format| {
                [Arithmetic::Float, Arithmetic::Whole, Arithmetic::Packed]
                    .into_iter()
                    .map(|arithmetic| format.modules(arithmetic))
                    .any(|(codes, scale)| filled == (Some(codes), Some(scale)))
            })
            .unwrap_or_else(|| panic!("{key} names no weight format"))
    }

    /// Chunks of 16 bytes a group; `None` where two groups share one.
    pub fn group_chunks(self) -> Option<u32> {
        match self {
            Self::F32 => Some(8),
            Self::F16 | Self::BF16 => Some(4),
            Self::Q8_0 => Some(2),
            Self::Q2K | Self::Q3K => None,
            _ => Some(1),
        }
    }

    /// Words of quants a row of `groups` groups takes.
    pub fn row_words(self, groups: u32) -> u32 {
        4 * match self.group_chunks() {
            Some(chunks) => chunks * groups,
            None => groups.div_ceil(2),
        }
    }

    /// Words of the planes at the start of a row's scale stream.
    pub fn plane_words(self, groups: u32) -> u32 {
        match self {
            Self::Q5_0 | Self::Q5_1 | Self::Q3K | Self::Q5K => groups,
            Self::Q6K => 2 * groups,
            _ => 0,
        }
    }

    /// Words of a row's scale stream, planes and scales; 0 for the formats without.
    pub fn row_scale_words(self, groups: u32) -> u32 {
        let supers = groups.div_ceil(SUPER_GROUPS);
        self.plane_words(groups)
            + match self {
                Self::F32 | Self::F16 | Self::BF16 => 0,
                Self::Q8_0 | Self::Q4_0 | Self::Q5_0 | Self::Iq4Nl => groups.div_ceil(2),
                Self::Q4_1 | Self::Q5_1 => groups,
                Self::Q2K | Self::Q4K | Self::Q5K => groups.div_ceil(2) + supers,
                Self::Q3K | Self::Q6K => groups.div_ceil(2) + supers.div_ceil(2),
                Self::Iq4Xs => groups.div_ceil(SPAN_GROUPS) + supers.div_ceil(2),
                Self::Mxfp4 => groups.div_ceil(SPAN_GROUPS),
            }
    }

    /// Bytes a row takes, quants and scales.
    pub fn row_bytes(self, groups: u32) -> u64 {
        4 * u64::from(self.row_words(groups) + self.row_scale_words(groups))
    }
}

/// The 16 codes of a format whose indices are looked up: signed bytes, four a word.
pub(crate) fn table(format: WeightFormat) -> [u32; 4] {
    match format {
        // Twice the values of E2M1 floats.
        WeightFormat::Mxfp4 => [0x0302_0100, 0x0c08_0604, 0xfdfe_ff00, 0xf4f8_fafc],
        _ => [0xbfad_9881, 0xf6ea_ddcf, 0x2619_0d01, 0x7159_4535],
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

/// Where the chunk of groups `group` and `group ^ 1` lies, in rows of whole super-blocks.
pub fn pair_order(groups: u32, group: u32) -> u32 {
    group / 2 % 2 * (groups / SPAN_GROUPS) + group / SPAN_GROUPS
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
        for groups in [8, 24] {
            let mut places: Vec<u32> = (0..groups / 2)
                .map(|pair| pair_order(groups, 2 * pair))
                .collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..groups / 2), "{groups}");
            assert_eq!(pair_order(groups, 4), pair_order(groups, 5));
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

    #[test]
    fn a_variant_says_its_format() {
        for &format in WeightFormat::ALL {
            let key = format.fill(KernelKey::plain("embed", "embed"));
            assert_eq!(WeightFormat::of_key(&key), format);
            for arithmetic in [Arithmetic::Whole, Arithmetic::Packed] {
                let key = format.fill_for(KernelKey::plain("matmul", "matmul_row"), arithmetic);
                assert_eq!(WeightFormat::of_key(&key), format);
            }
        }
    }
}
