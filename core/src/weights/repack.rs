//! From a file's rows to the device's: the same codes and scales, regrouped so that lanes read them
//! in order. Exact; no value changes. Knows the layouts of
//! [`weight`](twoclock_shaders::kernels::weight), no device.

use super::DType;
use twoclock_shaders::kernels::weight::{GROUP, WeightFormat, group_order};

/// The device format of a file's element type.
pub fn format_of(dtype: DType) -> WeightFormat {
    match dtype {
        DType::F32 => WeightFormat::F32,
        DType::F16 => WeightFormat::F16,
        DType::BF16 => WeightFormat::BF16,
        DType::Q8_0 => WeightFormat::Q8_0,
        DType::Q4_0 => WeightFormat::Q4_0,
        DType::Q4_1 => WeightFormat::Q4_1,
    }
}

/// Rows ready for a device: little-endian words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRows {
    /// [`WeightFormat::row_words`] a row.
    pub quants: Vec<u32>,
    /// [`WeightFormat::row_scale_words`] a row.
    pub scales: Vec<u32>,
}

/// Groups of 32 a row of `cols` elements takes, the padding counted.
pub fn groups(cols: usize) -> u32 {
    cols.div_ceil(GROUP as usize) as u32
}

/// Packs whole rows of `cols` elements, as the file has them (`dtype.row_bytes(cols)` each).
///
/// # Panics
/// When `raw` is not whole rows; the reader of the file gave them.
pub fn pack_rows(dtype: DType, cols: usize, raw: &[u8]) -> PackedRows {
    let format = format_of(dtype);
    let groups = groups(cols);
    let row_bytes = dtype.row_bytes(cols).expect("a row of whole blocks");
    assert_eq!(raw.len() % row_bytes, 0, "whole rows");
    let rows = raw.len() / row_bytes;
    let quant_words = format.row_words(groups) as usize;
    let scale_words = format.row_scale_words(groups) as usize;
    let mut packed = PackedRows {
        quants: vec![0; rows * quant_words],
        scales: vec![0; rows * scale_words],
    };
    let (block, scale_bytes) = match dtype {
        DType::F32 => (128, 0),
        DType::F16 | DType::BF16 => (64, 0),
        DType::Q8_0 | DType::Q4_0 => (dtype.block_bytes(), 2),
        DType::Q4_1 => (dtype.block_bytes(), 4),
    };
    let chunks = format.group_chunks();
    for (row, raw) in raw.chunks_exact(row_bytes).enumerate() {
        let quants = &mut packed.quants[row * quant_words..][..quant_words];
        let scales = &mut packed.scales[row * scale_words..][..scale_words];
        // A block of the file is a group; only unquantized rows can end in a short one.
        for (group, bytes) in raw.chunks(block).enumerate() {
            let group = group as u32;
            let (scale, codes) = bytes.split_at(scale_bytes);
            let at = group_order(groups, 1, group, 0) as usize;
            match *scale {
                [] => {}
                [lo, hi] => {
                    let d = u32::from(u16::from_le_bytes([lo, hi]));
                    scales[at / 2] |= d << (16 * (at % 2));
                }
                _ => scales[at] = word(scale),
            }
            for (chunk, codes) in codes.chunks(16).enumerate() {
                let at = 4 * group_order(groups, chunks, group, chunk as u32) as usize;
                for (to, from) in quants[at..at + 4].iter_mut().zip(codes.chunks(4)) {
                    *to = word(from);
                }
            }
        }
    }
    packed
}

/// Up to four bytes, little-endian, the missing ones zero.
fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_q4_1_keeps_every_bit() {
        // 5 groups: one whole span and one of a single group.
        let raw: Vec<u8> = (0..5 * 20).map(|i| i as u8).collect();
        let packed = pack_rows(DType::Q4_1, 160, &raw);
        assert_eq!(packed.quants.len(), 20);
        assert_eq!(packed.scales.len(), 5);
        for group in 0..5u32 {
            let at = group_order(5, 1, group, 0) as usize;
            let block = &raw[group as usize * 20..][..20];
            assert_eq!(packed.scales[at].to_le_bytes(), block[..4]);
            let codes: Vec<u8> = packed.quants[4 * at..][..4]
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect();
            assert_eq!(codes, block[4..]);
        }
    }

    #[test]
    fn unquantized_rows_are_padded_with_zeros() {
        let raw: Vec<u8> = [1.5f32; 36].iter().flat_map(|v| v.to_le_bytes()).collect();
        let packed = pack_rows(DType::F32, 36, &raw);
        assert_eq!(packed.quants.len(), 64);
        let ones = packed.quants.iter().filter(|&&w| w == 1.5f32.to_bits());
        assert_eq!(ones.count(), 36);
        assert_eq!(packed.quants.iter().filter(|&&w| w == 0).count(), 28);
    }

    #[test]
    fn halves_of_a_scale_word_are_two_groups() {
        let mut raw = vec![0u8; 3 * 18];
        for group in 0..3 {
            raw[group * 18] = group as u8 + 1;
        }
        let packed = pack_rows(DType::Q4_0, 96, &raw);
        assert_eq!(packed.scales, [1 | 2 << 16, 3]);
    }
}
