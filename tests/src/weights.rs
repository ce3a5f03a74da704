//! Random weight matrices in device layout, with the values they stand for.

use crate::Noise;
use half::f16;
use twoclock_core::weights::DType;
use twoclock_core::weights::block::dequantize;
use twoclock_core::weights::repack::{format_of, pack_rows};
use twoclock_shaders::kernels::weight::WeightFormat;

/// A matrix `[rows][k]`.
#[derive(Clone, Debug)]
pub struct Weights {
    /// How it is stored.
    pub format: WeightFormat,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub k: usize,
    /// Groups of 32 a row, the padding counted.
    pub groups: usize,
    /// Quants.
    pub w: Vec<u32>,
    /// Scales; empty for the formats without.
    pub ws: Vec<u32>,
    /// What the stored bits mean, row-major.
    pub values: Vec<f32>,
}

impl Weights {
    /// Random codes and moderate scales, as a file would hold them; `k` is whole blocks of the
    /// type.
    ///
    /// # Panics
    /// When it is not.
    pub fn random(noise: &mut Noise, dtype: DType, rows: usize, k: usize) -> Self {
        let row_bytes = dtype.row_bytes(k).expect("whole blocks");
        let raw = random_rows(noise, dtype, rows * row_bytes);
        let mut values = vec![0.0; rows * k];
        dequantize(dtype, &raw, &mut values);
        let packed = pack_rows(dtype, k, &raw);
        Self {
            format: format_of(dtype),
            rows,
            k,
            groups: k.div_ceil(32),
            w: packed.quants,
            ws: packed.scales,
            values,
        }
    }
}

fn random_rows(noise: &mut Noise, dtype: DType, bytes: usize) -> Vec<u8> {
    let mut raw: Vec<u8> = (0..bytes).map(|_| (noise.u32() >> 24) as u8).collect();
    // Where a block has its scale, and its minimum.
    let (d, m) = match dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::Mxfp4 => (None, None),
        DType::Q8_0 | DType::Q4_0 | DType::Q5_0 | DType::Iq4Nl | DType::Iq4Xs => (Some(0), None),
        DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K => (Some(0), Some(2)),
        DType::Q2K => (Some(80), Some(82)),
        DType::Q3K => (Some(108), None),
        DType::Q6K => (Some(208), None),
    };
    for block in raw.chunks_exact_mut(dtype.block_bytes()) {
        match dtype {
            DType::F32 => block.copy_from_slice(&noise.f32().to_le_bytes()),
            DType::F16 => block.copy_from_slice(&f16::from_f32(noise.f32()).to_le_bytes()),
            DType::BF16 => block.copy_from_slice(&noise.f32().to_le_bytes()[2..]),
            DType::Mxfp4 => block[0] = 118 + block[0] % 10,
            _ => {}
        }
        for (at, value) in [(d, 0.01 + 0.01 * noise.f32().abs()), (m, 0.1 * noise.f32())] {
            if let Some(at) = at {
                block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
            }
        }
    }
    raw
}
