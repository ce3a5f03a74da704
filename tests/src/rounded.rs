//! Rows of singles as a matmul's input, by the reference, and what such an input stands for.

use crate::Case;
use half::f16;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::quantize::{self, QuantizeParams};
use twoclock_shaders::program::CountId;

/// The words of rows of `dim` elements in a format.
///
/// # Panics
/// When `dim` is no multiple of 4.
pub fn rounded(act_format: ActFormat, rows: &[f32], dim: usize) -> Vec<u32> {
    let tokens = rows.len() / dim;
    let words = tokens * act_format.row_bytes(dim as u32) as usize / 4;
    if act_format == ActFormat::F32 {
        let padded = dim.next_multiple_of(32);
        let mut out = vec![0; tokens * padded];
        for (out, row) in out.chunks_exact_mut(padded).zip(rows.chunks_exact(dim)) {
            out[..dim].copy_from_slice(bytemuck::cast_slice(row));
        }
        return out;
    }
    let case = Case {
        inputs: vec![rows.into(), vec![0u32; words].into()],
        dispatches: Box::new(move |b| {
            let params = QuantizeParams {
                dim4: dim as u32 / 4,
                act_stride: act_format.stride(dim as u32),
            };
            vec![quantize::dispatch(
                act_format,
                params,
                CountId(0),
                b[0],
                b[1],
            )]
        }),
        counts: vec![tokens as u32],
    };
    let out = case.run(&mut CpuExecutor::default(), 1);
    out.into_iter().map(f32::to_bits).collect()
}

/// The values that such words stand for, rows padded to whole groups of 32.
pub fn widened(act_format: ActFormat, words: &[u32]) -> Vec<f64> {
    match act_format {
        ActFormat::F32 => words.iter().map(|&w| f32::from_bits(w).into()).collect(),
        ActFormat::F16 => words
            .iter()
            .flat_map(|&w| [w as u16, (w >> 16) as u16])
            .map(|bits| f16::from_bits(bits).to_f64())
            .collect(),
        ActFormat::Int8 => words
            .chunks_exact(12)
            .flat_map(|group| {
                let d = f64::from(f32::from_bits(group[8]));
                let codes: &[i8] = bytemuck::cast_slice(&group[..8]);
                codes
                    .iter()
                    .map(move |&c| d * f64::from(c))
                    .collect::<Vec<_>>()
            })
            .collect(),
    }
}
