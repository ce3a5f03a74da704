//! From a file's rows to the device's: the same codes and scales, regrouped so that lanes read them
//! in order. Exact; no value changes. Knows the layouts of
//! [`weight`](twoclock_shaders::kernels::weight), no device.

use super::block::{group_codes, half_bits, half_scales, iq4_xs_scale, k_scale};
use super::{DType, TensorInfo};
use twoclock_shaders::kernels::weight::{
    GROUP, SPAN_GROUPS, SUPER_GROUPS, WeightFormat, group_order, pair_order,
};

/// The device format of a file's element type: every type has its own.
pub fn format_of(dtype: DType) -> WeightFormat {
    match dtype {
        DType::F32 => WeightFormat::F32,
        DType::F16 => WeightFormat::F16,
        DType::BF16 => WeightFormat::BF16,
        DType::Q8_0 => WeightFormat::Q8_0,
        DType::Q4_0 => WeightFormat::Q4_0,
        DType::Q4_1 => WeightFormat::Q4_1,
        DType::Q5_0 => WeightFormat::Q5_0,
        DType::Q5_1 => WeightFormat::Q5_1,
        DType::Q2K => WeightFormat::Q2K,
        DType::Q3K => WeightFormat::Q3K,
        DType::Q4K => WeightFormat::Q4K,
        DType::Q5K => WeightFormat::Q5K,
        DType::Q6K => WeightFormat::Q6K,
        DType::Iq4Nl => WeightFormat::Iq4Nl,
        DType::Iq4Xs => WeightFormat::Iq4Xs,
        DType::Mxfp4 => WeightFormat::Mxfp4,
    }
}

/// The format of a tensor on a device: vectors become singles.
pub fn tensor_format(tensor: &TensorInfo) -> WeightFormat {
    match tensor.shape.len() {
        0 | 1 => WeightFormat::F32,
        _ => format_of(tensor.loaded_dtype()),
    }
}

/// Bytes of a tensor on a device, the alignment of buffers aside.
pub fn tensor_bytes(tensor: &TensorInfo) -> u64 {
    match tensor.shape.len() {
        0 | 1 => 4 * tensor.elements(),
        _ => tensor_format(tensor).row_bytes(groups(tensor.cols())) * tensor.rows() as u64,
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
    for (row, raw) in raw.chunks_exact(row_bytes).enumerate() {
        let row = RowWriter {
            format,
            groups,
            quants: &mut packed.quants[row * quant_words..][..quant_words],
            scales: &mut packed.scales[row * scale_words..][..scale_words],
        };
        if dtype.is_quantized() {
            row.pack_blocks(dtype, raw);
        } else {
            row.pack_elements(raw);
        }
    }
    packed
}

/// One row on its way.
struct RowWriter<'a> {
    format: WeightFormat,
    groups: u32,
    quants: &'a mut [u32],
    /// Planes, then scales.
    scales: &'a mut [u32],
}

impl RowWriter<'_> {
    /// Unquantized elements, which may end in a short group.
    fn pack_elements(mut self, raw: &[u8]) {
        let chunks = self.format.group_chunks().unwrap_or(1);
        for (i, bytes) in (0..).zip(raw.chunks(16)) {
            let mut padded = [0; 16];
            padded[..bytes.len()].copy_from_slice(bytes);
            self.chunk(
                i / chunks,
                i % chunks,
                bytemuck::cast::<[u8; 16], [u32; 4]>(padded).map(u32::from_le),
            );
        }
    }

    fn pack_blocks(mut self, dtype: DType, raw: &[u8]) {
        let block_groups = dtype.block_elements() as u32 / GROUP;
        let blocks = raw.chunks_exact(dtype.block_bytes());
        for (first, block) in (0..).step_by(block_groups as usize).zip(blocks) {
            for g in 0..block_groups {
                self.codes(first + g, &group_codes(dtype, block, g as usize));
                self.group_scales(dtype, first + g, block, g as usize);
            }
            self.super_scales(dtype, first / SUPER_GROUPS, block);
        }
    }

    fn chunk(&mut self, group: u32, piece: u32, words: [u32; 4]) {
        let chunks = self.format.group_chunks().unwrap_or(1);
        let at = 4 * group_order(self.groups, chunks, group, piece) as usize;
        self.quants[at..at + 4].copy_from_slice(&words);
    }

    fn codes(&mut self, group: u32, codes: &[u8; 32]) {
        match self.format {
            WeightFormat::Q8_0 => {
                let [a, b, c, d, e, f, g, h] = words(codes);
                self.chunk(group, 0, [a, b, c, d]);
                self.chunk(group, 1, [e, f, g, h]);
                return;
            }
            WeightFormat::Q2K | WeightFormat::Q3K => {
                let at = (4 * pair_order(self.groups, group) + 2 * (group % 2)) as usize;
                self.quants[at..at + 2].copy_from_slice(&two_bits(codes, 0));
            }
            _ => self.chunk(group, 0, nibbles(codes)),
        }
        let order = self.order(group);
        match self.format {
            WeightFormat::Q5_0 | WeightFormat::Q5_1 | WeightFormat::Q5K => {
                self.scales[order] = one_bit(codes, 4);
            }
            WeightFormat::Q3K => self.scales[order] = one_bit(codes, 2),
            WeightFormat::Q6K => {
                for (half, word) in (0..).zip(two_bits(codes, 4)) {
                    self.scales[group_order(self.groups, 2, group, half) as usize] = word;
                }
            }
            _ => {}
        }
    }

    /// What each group has for itself.
    fn group_scales(&mut self, dtype: DType, group: u32, block: &[u8], g: usize) {
        let order = self.order(group);
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => {}
            DType::Q8_0 | DType::Q4_0 | DType::Q5_0 | DType::Iq4Nl => {
                self.half(0, order, half_bits(block, 0));
            }
            DType::Q4_1 | DType::Q5_1 => {
                self.half(0, 2 * order, half_bits(block, 0));
                self.half(0, 2 * order + 1, half_bits(block, 2));
            }
            DType::Q2K => {
                let scales = u16::from_le_bytes([block[2 * g], block[2 * g + 1]]);
                self.half(0, order, scales);
            }
            DType::Q4K | DType::Q5K => {
                let (scale, min) = k_scale(block, g);
                self.half(0, order, u16::from_le_bytes([scale, min]));
            }
            DType::Q3K | DType::Q6K => {
                let [first, second] = half_scales(dtype, block, g).map(i8::cast_unsigned);
                self.half(0, order, u16::from_le_bytes([first, second]));
            }
            DType::Iq4Xs => self.span_byte(group, iq4_xs_scale(block, g).cast_unsigned()),
            DType::Mxfp4 => self.span_byte(group, block[0]),
        }
    }

    /// What a super-block shares.
    fn super_scales(&mut self, dtype: DType, index: u32, block: &[u8]) {
        let index = index as usize;
        // Behind 16 bits a group.
        let behind = self.groups.div_ceil(2) as usize;
        match dtype {
            DType::Q2K | DType::Q4K | DType::Q5K => {
                let d = if dtype == DType::Q2K { 80 } else { 0 };
                self.half(behind, 2 * index, half_bits(block, d));
                self.half(behind, 2 * index + 1, half_bits(block, d + 2));
            }
            DType::Q3K => self.half(behind, index, half_bits(block, 108)),
            DType::Q6K => self.half(behind, index, half_bits(block, 208)),
            DType::Iq4Xs => {
                let behind = self.groups.div_ceil(SPAN_GROUPS) as usize;
                self.half(behind, index, half_bits(block, 0));
            }
            _ => {}
        }
    }

    /// Where what a group has once lies.
    fn order(&self, group: u32) -> usize {
        group_order(self.groups, 1, group, 0) as usize
    }

    /// Writes the 16 bits numbered `i` from word `base` of the scales on.
    fn half(&mut self, base: usize, i: usize, bits: u16) {
        let at = self.format.plane_words(self.groups) as usize + base + i / 2;
        self.scales[at] |= u32::from(bits) << (16 * (i % 2));
    }

    /// Writes the byte of a group where a span has a word.
    fn span_byte(&mut self, group: u32, byte: u8) {
        self.scales[(group / SPAN_GROUPS) as usize] |=
            u32::from(byte) << (8 * (group % SPAN_GROUPS));
    }
}

/// Four codes a word, the first in its low byte.
fn words(codes: &[u8; 32]) -> [u32; 8] {
    let (fours, _) = codes.as_chunks();
    std::array::from_fn(|j| u32::from_le_bytes(fours[j]))
}

/// Byte i holds the lower four bits of elements i and i + 16.
fn nibbles(codes: &[u8; 32]) -> [u32; 4] {
    let q = words(codes);
    std::array::from_fn(|i| (q[i] & 0x0f0f_0f0f) | (q[i + 4] & 0x0f0f_0f0f) << 4)
}

/// Bit `shift` of element 4 j + c at bit 8 c + j.
fn one_bit(codes: &[u8; 32], shift: u32) -> u32 {
    (0..)
        .zip(words(codes))
        .fold(0, |plane, (j, q)| plane | (q >> shift & 0x0101_0101) << j)
}

/// Bits `shift` and `shift + 1` of element 16 h + 4 j + c at bits 8 c + 2 j of word h.
fn two_bits(codes: &[u8; 32], shift: u32) -> [u32; 2] {
    let mut planes = [0; 2];
    for (j, q) in words(codes).into_iter().enumerate() {
        planes[j / 4] |= (q >> shift & 0x0303_0303) << (2 * (j % 4));
    }
    planes
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

    #[test]
    fn a_row_takes_little_more_than_in_the_file() {
        for dtype in DType::ALL {
            for cols in [512, 1024, 4096] {
                let file = dtype.row_bytes(cols).expect("whole blocks") as f64;
                let device = format_of(dtype).row_bytes(groups(cols)) as f64;
                assert!(device <= 1.04 * file, "{dtype} {cols}: {device} of {file}");
            }
        }
    }
}
