//! Random weight matrices in device layout, with the values they stand for.

use crate::Noise;
use twoclock_core::weights::DType;
use twoclock_core::weights::block::dequantize;
use twoclock_core::weights::dummy::random_blocks;
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
        let raw = random_blocks(dtype, rows * row_bytes, 1.0, || noise.u32());
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
