//! Random weight matrices in device layout, with the values they stand for.

use crate::Noise;
use half::{bf16, f16};
use twoclock_shaders::kernels::weight::{WeightFormat, group_order};

/// A matrix `[rows][k]`.
#[derive(Clone, Debug)]
pub struct Weights {
    /// How it is stored.
    pub format: WeightFormat,
    /// Rows.
    pub rows: usize,
    /// Groups of 32 a row.
    pub groups: usize,
    /// Quants.
    pub w: Vec<u32>,
    /// Scales; empty for the formats without.
    pub ws: Vec<u32>,
    /// What the stored bits mean, row-major, exactly.
    pub values: Vec<f64>,
}

impl Weights {
    /// Random codes and scales; `k` is a multiple of 32.
    pub fn random(noise: &mut Noise, format: WeightFormat, rows: usize, k: usize) -> Self {
        let groups = k / 32;
        let row_words = format.row_words(groups as u32) as usize;
        let row_scale_words = format.row_scale_words(groups as u32) as usize;
        let mut weights = Self {
            format,
            rows,
            groups,
            w: vec![0; rows * row_words],
            ws: vec![0; rows * row_scale_words],
            values: vec![0.0; rows * k],
        };
        let order = |pieces, group: usize, piece: usize| {
            group_order(groups as u32, pieces, group as u32, piece as u32) as usize
        };
        for row in 0..rows {
            for group in 0..groups {
                let d = f16::from_f32(0.01 + 0.01 * noise.f32().abs());
                let m = f16::from_f32(0.1 * noise.f32());
                let scale_at = row * row_scale_words * 2;
                let scales: &mut [u16] = bytemuck::cast_slice_mut(&mut weights.ws);
                match format {
                    WeightFormat::Q4_1 => {
                        let at = scale_at + 2 * order(1, group, 0);
                        scales[at] = d.to_bits();
                        scales[at + 1] = m.to_bits();
                    }
                    WeightFormat::Q4_0 | WeightFormat::Q8_0 => {
                        scales[scale_at + order(1, group, 0)] = d.to_bits();
                    }
                    WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 => {}
                }
                for i in 0..32 {
                    let value = &mut weights.values[row * k + 32 * group + i];
                    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut weights.w);
                    let bytes = &mut bytes[4 * row * row_words..];
                    // Byte of a piece-wise stored row where the group's byte `b` lies.
                    let at = |b: usize| {
                        let pieces = format.group_chunks();
                        16 * order(pieces, group, b / 16) + b % 16
                    };
                    let (d, m) = (f64::from(d), f64::from(m));
                    match format {
                        WeightFormat::F32 => {
                            let v = noise.f32();
                            bytes[at(4 * i)..][..4].copy_from_slice(&v.to_le_bytes());
                            *value = f64::from(v);
                        }
                        WeightFormat::F16 => {
                            let v = f16::from_f32(noise.f32());
                            bytes[at(2 * i)..][..2].copy_from_slice(&v.to_le_bytes());
                            *value = f64::from(v);
                        }
                        WeightFormat::BF16 => {
                            let v = bf16::from_f32(noise.f32());
                            bytes[at(2 * i)..][..2].copy_from_slice(&v.to_le_bytes());
                            *value = f64::from(v);
                        }
                        WeightFormat::Q8_0 => {
                            let q = (noise.u32() >> 24) as u8;
                            bytes[at(i)] = q;
                            *value = d * f64::from(q.cast_signed());
                        }
                        WeightFormat::Q4_0 | WeightFormat::Q4_1 => {
                            let q = (noise.u32() >> 28) as u8;
                            bytes[at(i % 16)] |= q << (4 * (i / 16));
                            let offset = match format {
                                WeightFormat::Q4_0 => -8.0 * d,
                                _ => m,
                            };
                            *value = d * f64::from(q) + offset;
                        }
                    }
                }
            }
        }
        weights
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        32 * self.groups
    }
}
