//! A row of a weight matrix on a device, in codes and scales, for the reference kernels that read
//! weights. Knows the layouts of [`crate::kernels::weight`] and no chain.

use super::fma;
use crate::kernels::act::ActFormat;
use crate::kernels::weight::{
    SPAN_GROUPS, SUPER_GROUPS, WeightFormat, group_order, pair_order, table,
};
use half::f16;

/// Elements of a group.
const GROUP: usize = 32;

/// How codes become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// They are weights.
    None,
    /// `d · code`.
    Scale,
    /// `d · code + m`.
    ScaleOffset,
    /// As [`Scaling::None`], for inputs that are codes.
    CodesNone,
    /// As [`Scaling::Scale`], for inputs that are codes.
    CodesScale,
    /// As [`Scaling::ScaleOffset`], for inputs that are codes.
    CodesScaleOffset,
    /// `d · code + m · half_m`, for inputs that are codes.
    CodesHalfOffsets,
}

/// Of a group; zeros where there are none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scale {
    pub(super) d: f32,
    pub(super) m: f32,
    /// Of the halves, whole numbers.
    pub(super) half_m: [f32; 2],
}

impl Scaling {
    pub(super) fn of(format: WeightFormat, inputs: ActFormat) -> Self {
        use WeightFormat as F;
        if inputs == ActFormat::Int8 {
            return match Self::of_singles(format) {
                _ if format == F::Q2K => Self::CodesHalfOffsets,
                Self::None => Self::CodesNone,
                Self::Scale => Self::CodesScale,
                _ => Self::CodesScaleOffset,
            };
        }
        Self::of_singles(format)
    }

    fn of_singles(format: WeightFormat) -> Self {
        use WeightFormat as F;
        match format {
            F::F32 | F::F16 | F::BF16 | F::Q2K => Self::None,
            F::Q8_0 | F::Q3K | F::Q6K | F::Iq4Nl | F::Iq4Xs | F::Mxfp4 => Self::Scale,
            F::Q4_0 | F::Q4_1 | F::Q5_0 | F::Q5_1 | F::Q4K | F::Q5K => Self::ScaleOffset,
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    format: WeightFormat,
    groups: u32,
    w: &'a [u32],
    /// Planes, then scales.
    ws: &'a [u32],
}

impl<'a> Row<'a> {
    /// Row `row` of the bound windows.
    pub(super) fn new(
        format: WeightFormat,
        groups: u32,
        w: &'a [u32],
        ws: &'a [u32],
        row: usize,
    ) -> Self {
        let words = format.row_words(groups) as usize;
        let scale_words = format.row_scale_words(groups) as usize;
        Self {
            format,
            groups,
            w: &w[row * words..][..words],
            // A format without scales has some other window bound in their place.
            ws: if scale_words == 0 {
                &[]
            } else {
                &ws[row * scale_words..][..scale_words]
            },
        }
    }

    fn chunk(&self, group: u32, piece: u32) -> &'a [u32] {
        let at = match self.format.group_chunks() {
            Some(chunks) => group_order(self.groups, chunks, group, piece),
            None => pair_order(self.groups, group),
        };
        &self.w[4 * at as usize..][..4]
    }

    /// What a group has once in the order of groups.
    fn order(&self, group: u32) -> usize {
        group_order(self.groups, 1, group, 0) as usize
    }

    /// The scales behind the planes.
    fn scales(&self) -> &'a [u32] {
        &self.ws[self.format.plane_words(self.groups) as usize..]
    }

    /// Words that the first kind of scales takes where each group has 16 bits.
    fn half_words(&self) -> usize {
        self.groups.div_ceil(2) as usize
    }

    /// The codes of a group as floats.
    pub(super) fn codes(&self, group: u32, scaling: Scaling, out: &mut [f32; GROUP]) {
        use WeightFormat as F;
        match self.format {
            F::F32 => {
                for (piece, out) in (0..).zip(out.chunks_exact_mut(4)) {
                    out.copy_from_slice(bytemuck::cast_slice(self.chunk(group, piece)));
                }
            }
            F::F16 => self.pairs(group, out, |bits| f16::from_bits(bits).to_f32()),
            F::BF16 => self.pairs(group, out, |bits| f32::from_bits(u32::from(bits) << 16)),
            F::Q8_0 => {
                for (piece, out) in (0..).zip(out.chunks_exact_mut(16)) {
                    let bytes: &[i8] = bytemuck::cast_slice(self.chunk(group, piece));
                    for (out, &byte) in out.iter_mut().zip(bytes) {
                        *out = f32::from(byte);
                    }
                }
            }
            F::Q4_0 | F::Q4_1 | F::Q4K => {
                let q = self.nibbles(group);
                *out = q.map(f32::from);
            }
            F::Iq4Nl | F::Iq4Xs | F::Mxfp4 => {
                let table: [i8; 16] = bytemuck::cast(table(self.format));
                *out = self
                    .nibbles(group)
                    .map(|q| f32::from(table[usize::from(q)]));
            }
            F::Q5_0 | F::Q5_1 | F::Q5K => {
                let mut q = self.nibbles(group);
                self.bits(group, 4, &mut q);
                *out = q.map(f32::from);
            }
            F::Q6K => {
                let mut q = self.nibbles(group);
                let plane = |half| {
                    let at = group_order(self.groups, 2, group, half);
                    self.ws[at as usize]
                };
                let high = two_bits([plane(0), plane(1)]);
                for (q, high) in q.iter_mut().zip(high) {
                    *q |= high << 4;
                }
                self.times_half_scales(group, q, 32, out);
            }
            F::Q3K => {
                let mut q = self.quarters(group);
                self.bits(group, 2, &mut q);
                self.times_half_scales(group, q, 4, out);
            }
            F::Q2K if scaling == Scaling::CodesHalfOffsets => {
                let scales = half_at(self.ws, self.order(group)).to_le_bytes();
                let q = self.quarters(group);
                for (i, (out, q)) in out.iter_mut().zip(q).enumerate() {
                    *out = f32::from(scales[i / 16] & 15) * f32::from(q);
                }
            }
            F::Q2K => {
                let scale = half_at(self.ws, self.order(group));
                let d = self.ws[self.half_words() + (group / SUPER_GROUPS) as usize];
                let [d, dmin] = [d as u16, (d >> 16) as u16].map(|b| f16::from_bits(b).to_f32());
                let q = self.quarters(group);
                for (i, (out, q)) in out.iter_mut().zip(q).enumerate() {
                    let scale = scale >> (8 * (i / 16));
                    let (s, m) = (scale & 15, scale >> 4 & 15);
                    *out = fma(d * f32::from(s), f32::from(q), -dmin * f32::from(m));
                }
            }
        }
    }

    fn pairs(&self, group: u32, out: &mut [f32; GROUP], value: impl Fn(u16) -> f32) {
        for (piece, out) in (0..).zip(out.chunks_exact_mut(8)) {
            for (word, out) in self.chunk(group, piece).iter().zip(out.chunks_exact_mut(2)) {
                out[0] = value(*word as u16);
                out[1] = value((word >> 16) as u16);
            }
        }
    }

    fn nibbles(&self, group: u32) -> [u8; GROUP] {
        let bytes: &[u8] = bytemuck::cast_slice(self.chunk(group, 0));
        std::array::from_fn(|i| bytes[i % 16] >> (4 * (i / 16)) & 15)
    }

    /// Two bits each, of the chunk two groups share.
    fn quarters(&self, group: u32) -> [u8; GROUP] {
        let words = &self.chunk(group, 0)[2 * (group % 2) as usize..][..2];
        two_bits([words[0], words[1]])
    }

    /// Adds a plane of one bit at `place`.
    fn bits(&self, group: u32, place: u32, codes: &mut [u8; GROUP]) {
        let plane = self.ws[self.order(group)];
        for (i, code) in codes.iter_mut().enumerate() {
            *code |= ((plane >> (8 * (i % 4) + i / 4) & 1) as u8) << place;
        }
    }

    fn times_half_scales(&self, group: u32, q: [u8; GROUP], zero: i8, out: &mut [f32; GROUP]) {
        let [first, second] = half_at(self.scales(), self.order(group)).to_le_bytes();
        for (i, (out, q)) in out.iter_mut().zip(q).enumerate() {
            let scale = if i < 16 { first } else { second };
            *out = f32::from(scale.cast_signed()) * f32::from(q.cast_signed() - zero);
        }
    }

    /// The weights of a group, widened to singles.
    pub(super) fn widened(&self, group: u32) -> [f32; GROUP] {
        let scaling = Scaling::of_singles(self.format);
        let mut codes = [0.0; GROUP];
        self.codes(group, scaling, &mut codes);
        let Scale { d, m, .. } = self.scale(group, scaling);
        codes.map(|code| match scaling {
            Scaling::None => code,
            Scaling::Scale => d * code,
            _ => fma(d, code, m),
        })
    }

    /// Scale and offset of a group.
    pub(super) fn scale(&self, group: u32, scaling: Scaling) -> Scale {
        if scaling == Scaling::CodesHalfOffsets {
            let scales = half_at(self.ws, self.order(group)).to_le_bytes();
            let d = self.ws[self.half_words() + (group / SUPER_GROUPS) as usize];
            let [d, dmin] = [d as u16, (d >> 16) as u16].map(|b| f16::from_bits(b).to_f32());
            return Scale {
                d,
                m: -dmin,
                half_m: scales.map(|s| f32::from(s >> 4)),
            };
        }
        let [d, m] = self.scale_and_offset(group);
        Scale {
            d,
            m,
            ..Scale::default()
        }
    }

    fn scale_and_offset(&self, group: u32) -> [f32; 2] {
        use WeightFormat as F;
        let scales = self.scales();
        let order = self.order(group);
        let (span, lane) = (group / SPAN_GROUPS, group % SPAN_GROUPS);
        let in_super = (group / SUPER_GROUPS) as usize;
        let half = |scales: &[u32], i| f16::from_bits(half_at(scales, i)).to_f32();
        match self.format {
            F::F32 | F::F16 | F::BF16 | F::Q2K => [0.0; 2],
            F::Q8_0 | F::Iq4Nl => [half(scales, order), 0.0],
            F::Q4_0 | F::Q5_0 => {
                let d = half(scales, order);
                let zero = if self.format == F::Q4_0 { 8.0 } else { 16.0 };
                [d, -zero * d]
            }
            F::Q4_1 | F::Q5_1 => [half(scales, 2 * order), half(scales, 2 * order + 1)],
            F::Q4K | F::Q5K => {
                let [s, m] = half_at(scales, order).to_le_bytes().map(f32::from);
                let supers = &scales[self.half_words()..];
                let (d, dmin) = (half(supers, 2 * in_super), half(supers, 2 * in_super + 1));
                [d * s, -(dmin * m)]
            }
            F::Q3K | F::Q6K => [half(&scales[self.half_words()..], in_super), 0.0],
            F::Iq4Xs => {
                let s = scales[span as usize].to_le_bytes()[lane as usize];
                let supers = &scales[self.groups.div_ceil(SPAN_GROUPS) as usize..];
                [half(supers, in_super) * f32::from(s.cast_signed()), 0.0]
            }
            F::Mxfp4 => {
                let e = scales[span as usize].to_le_bytes()[lane as usize];
                let bits = match e {
                    0 | 1 => 0x0020_0000 << e,
                    _ => u32::from(e - 1) << 23,
                };
                [f32::from_bits(bits), 0.0]
            }
        }
    }
}

/// The 16 bits numbered `i`.
fn half_at(words: &[u32], i: usize) -> u16 {
    (words[i / 2] >> (16 * (i % 2))) as u16
}

/// Element 16 h + 4 j + c at bits 8 c + 2 j of word h.
fn two_bits(words: [u32; 2]) -> [u8; GROUP] {
    std::array::from_fn(|i| (words[i / 16] >> (8 * (i % 4) + 2 * (i / 4 % 4)) & 3) as u8)
}
