//! Inputs of matmuls as [`crate::kernels::act`] stores them. Knows no chain.

use super::join;
use super::kv::half_bits;
use crate::kernels::act::ActFormat;
use half::f16;

/// Elements of a group.
const GROUP: usize = 32;

/// Largest magnitudes from which a group is all zeros: 2⁻¹⁰⁰.
const SMALLEST: f32 = f32::from_bits(0x0d80_0000);

/// Stores a row of whole vectors of four, from vector `at4` of a token's row on; groups are filled up
/// with zeros, and `at4` begins one.
pub(super) fn store(
    format: ActFormat,
    out: &mut [u32],
    (token, at4, stride): (u32, u32, u32),
    x: &[f32],
) {
    let (token, at4, stride) = (token as usize, at4 as usize, stride as usize);
    if format == ActFormat::F32 {
        let out = &mut out[4 * (token * stride + at4)..][..x.len()];
        out.copy_from_slice(bytemuck::cast_slice(x));
        return;
    }
    for (g, x) in x.chunks(GROUP).enumerate() {
        let mut group = [0.0; GROUP];
        group[..x.len()].copy_from_slice(x);
        let at = token * stride + at4 / 8 + g;
        if format == ActFormat::F16 {
            for (word, x) in out[16 * at..][..16].iter_mut().zip(group.chunks_exact(2)) {
                *word = u32::from(half_bits(x[0])) | u32::from(half_bits(x[1])) << 16;
            }
        } else {
            out[12 * at..][..12].copy_from_slice(&quantized(&group));
        }
    }
}

/// The words of a group in bytes.
fn quantized(x: &[f32; GROUP]) -> [u32; 12] {
    let mut words = [0; 12];
    let top = x
        .iter()
        .map(|v| v.to_bits() & 0x7fff_ffff)
        .max()
        .unwrap_or(0);
    let most = f32::from_bits(top);
    if most < SMALLEST {
        return words;
    }
    let mut sums = [0i32; 2];
    let mut d = f32::NAN;
    if most.is_finite() {
        d = most * (1.0 / 127.0);
        let inverse = 127.0 * (1.0 / most);
        for (i, v) in x.iter().enumerate() {
            let code = (v * inverse).round_ties_even() as i32;
            words[i / 4] |= (code as u32 & 255) << (8 * (i % 4));
            sums[i / 16] += code;
        }
    }
    words[8] = d.to_bits();
    words[9] = (d * (sums[0] + sums[1]) as f32).to_bits();
    words[10] = sums[0] as u32 & 0xffff | (sums[1] as u32) << 16;
    words
}

/// What a chain takes of a group of inputs beside its elements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Scale of codes.
    pub(super) d: f32,
    /// The sum of the inputs: of singles by the chain, else as stored.
    pub(super) xs: f32,
    /// Σ codes of the halves.
    pub(super) halves: [f32; 2],
}

/// A token's row of `groups` groups: singles, widened halves, or codes.
pub(super) fn row(
    format: ActFormat,
    words: &[u32],
    token: u32,
    stride: u32,
    groups: u32,
) -> (Vec<f32>, Vec<Sums>) {
    let (at, groups) = (token as usize * stride as usize, groups as usize);
    let mut x = Vec::with_capacity(groups * GROUP);
    let mut sums = Vec::with_capacity(groups);
    match format {
        ActFormat::F32 => {
            let row = &words[4 * at..][..groups * GROUP];
            x.extend_from_slice(bytemuck::cast_slice(row));
        }
        ActFormat::F16 => {
            for word in &words[16 * at..][..16 * groups] {
                x.push(f16::from_bits(*word as u16).to_f32());
                x.push(f16::from_bits((word >> 16) as u16).to_f32());
            }
        }
        ActFormat::Int8 => {
            for group in words[12 * at..][..12 * groups].chunks_exact(12) {
                let codes: &[i8] = bytemuck::cast_slice(&group[..8]);
                x.extend(codes.iter().map(|&c| f32::from(c)));
                sums.push(Sums {
                    d: f32::from_bits(group[8]),
                    xs: f32::from_bits(group[9]),
                    halves: [group[10] as i16, (group[10] >> 16) as i16].map(f32::from),
                });
            }
        }
    }
    if format != ActFormat::Int8 {
        sums.extend(x.chunks_exact(GROUP).map(|group| {
            let mut s = [0.0; 4];
            for v in group.chunks_exact(4) {
                for c in 0..4 {
                    s[c] += v[c];
                }
            }
            Sums {
                xs: join(s),
                ..Sums::default()
            }
        }));
    }
    (x, sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_off_by_half_a_step_at_most() {
        let x: [f32; GROUP] = std::array::from_fn(|i| (i as f32 - 12.3) * 0.37);
        let mut out = vec![0; 24];
        store(ActFormat::Int8, &mut out, (1, 0, 1), &x);
        let (codes, sums) = row(ActFormat::Int8, &out, 1, 1, 1);
        let Sums { d, xs, halves } = sums[0];
        for (code, x) in codes.iter().zip(x) {
            assert!((code * d - x).abs() <= 0.501 * d, "{code} {x}");
        }
        assert_eq!(codes.iter().sum::<f32>(), halves[0] + halves[1]);
        assert_eq!(xs, d * (halves[0] + halves[1]));
        assert_eq!(codes[31], 127.0);
    }

    #[test]
    fn what_is_no_number_stays_none_and_what_is_tiny_vanishes() {
        for (value, d) in [(f32::INFINITY, None), (f32::NAN, None), (1e-38, Some(0.0))] {
            let mut x = [0.0; GROUP];
            x[3] = value;
            let words = quantized(&x);
            let found = f32::from_bits(words[8]);
            assert_eq!((!found.is_nan()).then_some(found), d, "{value}");
            assert_eq!(words[..8], [0; 8]);
        }
    }
}
