//! Pages of keys and values as [`crate::kernels::kv`] writes them down: reading a row, and rounding
//! one into its page. Knows no block table.

use crate::kernels::kv::{GROUP, KvDtype, MAX_CODE};
use half::f16;

/// Where rows of pages lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvRows {
    pub(super) dtype: KvDtype,
    pub(super) kv_heads: u32,
    pub(super) block_size: u32,
    pub(super) head_dim: usize,
}

/// One row of one page: its first word, and its first scale in halves where there are scales.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvRow {
    word: usize,
    half: usize,
}

impl KvRows {
    pub(super) fn row(&self, page: u32, kv_head: u32, token: u32) -> KvRow {
        let row = (kv_head * self.block_size + token) as usize;
        let words = self
            .dtype
            .page_bytes(self.kv_heads, self.head_dim as u32, self.block_size)
            / 4;
        let page = page as usize * words as usize;
        let row_words = self.head_dim * self.code_bytes() / 4;
        let rows = (self.kv_heads * self.block_size) as usize;
        let groups = self.head_dim.div_ceil(GROUP as usize);
        KvRow {
            word: page + row * row_words,
            half: 2 * (page + rows * row_words) + row * groups,
        }
    }

    fn code_bytes(&self) -> usize {
        match self.dtype {
            KvDtype::F32 => 4,
            KvDtype::F16 => 2,
            KvDtype::Int8 => 1,
        }
    }

    /// A row's codes; `room` holds them where they are not floats already.
    pub(super) fn codes<'a>(&self, cache: &'a [u32], row: KvRow, room: &'a mut [f32]) -> &'a [f32] {
        let words = &cache[row.word..][..self.head_dim * self.code_bytes() / 4];
        let room = &mut room[..self.head_dim];
        match self.dtype {
            KvDtype::F32 => return bytemuck::cast_slice(words),
            KvDtype::F16 => {
                for (pair, word) in room.chunks_exact_mut(2).zip(words) {
                    pair[0] = f16::from_bits(*word as u16).to_f32();
                    pair[1] = f16::from_bits((word >> 16) as u16).to_f32();
                }
            }
            KvDtype::Int8 => {
                for (four, word) in room.chunks_exact_mut(4).zip(words) {
                    for (code, byte) in four.iter_mut().zip(word.to_le_bytes()) {
                        *code = f32::from(byte.cast_signed());
                    }
                }
            }
        }
        room
    }

    /// What the codes of a group are times.
    pub(super) fn scale(&self, cache: &[u32], row: KvRow, group: usize) -> f32 {
        match self.dtype {
            KvDtype::F32 | KvDtype::F16 => 1.0,
            KvDtype::Int8 => {
                let half = row.half + group;
                f16::from_bits((cache[half / 2] >> (16 * (half & 1))) as u16).to_f32()
            }
        }
    }

    /// Rounds a row into its page.
    pub(super) fn store(&self, cache: &mut [u32], row: KvRow, values: &[f32]) {
        let words = &mut cache[row.word..];
        match self.dtype {
            KvDtype::F32 => words[..values.len()].copy_from_slice(bytemuck::cast_slice(values)),
            KvDtype::F16 => {
                for (word, pair) in words.iter_mut().zip(values.chunks_exact(2)) {
                    let [low, high] = [pair[0], pair[1]].map(|v| u32::from(half_bits(v)));
                    *word = low | (high << 16);
                }
            }
            KvDtype::Int8 => {
                for (group, values) in values.chunks(GROUP as usize).enumerate() {
                    let scale = self.store_group(cache, row, group, values);
                    let half = row.half + group;
                    let shift = 16 * (half & 1);
                    let word = &mut cache[half / 2];
                    *word = (*word & !(0xffff << shift)) | (u32::from(scale) << shift);
                }
            }
        }
    }

    /// Rounds a group's codes and gives its scale.
    fn store_group(&self, cache: &mut [u32], row: KvRow, group: usize, values: &[f32]) -> u16 {
        let scale = match values.iter().all(|v| v.is_finite()) {
            true => {
                let top = values.iter().fold(0f32, |top, v| top.max(v.abs()));
                half_bits(top * (1.0 / MAX_CODE))
            }
            false => f16::NAN.to_bits(),
        };
        let inverse = match f16::from_bits(scale).to_f32() {
            s if s > 0.0 => 1.0 / s,
            _ => 0.0,
        };
        let words = &mut cache[row.word + group * GROUP as usize / 4..];
        for (word, four) in words.iter_mut().zip(values.chunks_exact(4)) {
            let code = |i: usize| {
                let code = (four[i] * inverse).round_ties_even();
                (code.clamp(-MAX_CODE, MAX_CODE) as i8).cast_unsigned()
            };
            *word = u32::from_le_bytes([code(0), code(1), code(2), code(3)]);
        }
        scale
    }
}

/// The bits of the nearest half, ties to even; what is finite stays so.
pub(super) fn half_bits(v: f32) -> u16 {
    const MAX: f32 = 65504.0;
    if v.is_nan() {
        return (v.to_bits() >> 16) as u16 & 0x8000 | 0x7e00;
    }
    let v = if v.is_finite() { v.clamp(-MAX, MAX) } else { v };
    f16::from_f32(v).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_the_nearest_and_stay_finite() {
        for (v, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (1.0 + 0.5 / 1024.0, 0x3c00),
            (1.0 + 1.5 / 1024.0, 0x3c02),
            (65503.0, 0x7bff),
            (65519.0, 0x7bff),
            (-1e30, 0xfbff),
            (f32::INFINITY, 0x7c00),
            (f32::NAN, 0x7e00),
            (1.5 / 16_777_216.0, 2),
            (0.5 / 16_777_216.0, 0),
        ] {
            assert_eq!(half_bits(v), bits, "{v}");
        }
    }

    #[test]
    fn bytes_are_off_by_half_a_step_at_most() {
        let rows = KvRows {
            dtype: KvDtype::Int8,
            kv_heads: 1,
            block_size: 16,
            head_dim: 72,
        };
        let values: Vec<f32> = (0..72u8).map(|i| (f32::from(i) - 40.3) * 0.37).collect();
        let mut page = vec![0; rows.dtype.page_bytes(1, 72, 16) as usize / 4];
        // Behind a row of three scales the next one begins inside a word.
        for token in [1, 2] {
            rows.store(&mut page, rows.row(0, 0, token), &values);
        }
        let mut room = [0.0; 72];
        for token in [1, 2] {
            let row = rows.row(0, 0, token);
            let codes = rows.codes(&page, row, &mut room).to_vec();
            for (group, (codes, values)) in codes.chunks(32).zip(values.chunks(32)).enumerate() {
                let scale = rows.scale(&page, row, group);
                let top = values.iter().fold(0f32, |top, v| top.max(v.abs()));
                assert!((scale * 127.0 / top - 1.0).abs() < 1e-3);
                assert!(codes.iter().any(|code| code.abs() == 127.0));
                for (code, v) in codes.iter().zip(values) {
                    assert!((code * scale - v).abs() <= 0.5001 * scale, "{v}");
                }
            }
        }
        let row = rows.row(0, 0, 3);
        let mut broken = values.clone();
        broken[40] = f32::INFINITY;
        rows.store(&mut page, row, &broken);
        let scales = [0, 1, 2].map(|group| rows.scale(&page, row, group).is_nan());
        assert_eq!(scales, [false, true, false]);
    }
}
