//! Whether this device computes what the reference computes: the residual sum, bit for bit, and a
//! norm of it, to rounding. Knows no browser: a native test could run it as well.

use std::fmt;

use twoclock_core::clock::Clock;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::{residual, rms_norm};
use twoclock_shaders::program::{Command, CountId, Program, Slice, StepArgs};

const TOKENS: usize = 8;
/// SmolLM2's width.
const DIM: usize = 576;
/// Largest relative difference of the norm. WGSL lets a division and a square root be off by a few
/// units in the last place, and `fma` be rounded twice (WGSL §15.7.4).
const TOLERANCE: f32 = 1e-5;

/// What was compared, and how it went.
#[derive(Debug)]
pub(crate) struct Outcome {
    values: usize,
    largest: f32,
    milliseconds: u128,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "residual: {} values bit-equal; rms_norm: {} values, largest relative difference {:.1e}; {} ms",
            self.values, self.values, self.largest, self.milliseconds
        )
    }
}

/// Why a device is not to be used.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It failed.
    Executor(ExecutorError),
    /// It computes something else.
    Differs {
        kernel: &'static str,
        at: usize,
        got: f32,
        expected: f32,
    },
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executor(e) => e.fmt(f),
            Self::Differs {
                kernel,
                at,
                got,
                expected,
            } => write!(
                f,
                "this device computes {kernel} wrongly: value {at} is {got:?} and must be {expected:?}"
            ),
        }
    }
}

impl From<ExecutorError> for Fault {
    fn from(error: ExecutorError) -> Self {
        Self::Executor(error)
    }
}

/// Runs both kernels on `executor` and on the reference and compares.
pub(crate) async fn run(
    executor: &mut impl Executor,
    clock: &impl Clock,
) -> Result<Outcome, Fault> {
    let start = clock.now();
    let (sum, norm) = sum_and_norm(executor).await?;
    let elapsed = clock.now().saturating_sub(start);
    let (expected_sum, expected_norm) = sum_and_norm(&mut CpuExecutor::default()).await?;
    compare("residual", &sum, &expected_sum, 0.0)?;
    let largest = compare("rms_norm", &norm, &expected_norm, TOLERANCE)?;
    Ok(Outcome {
        values: sum.len(),
        largest,
        milliseconds: elapsed.as_millis(),
    })
}

/// x + y, and rstd · (x + y) ∘ g, both `[TOKENS][DIM]`.
async fn sum_and_norm(executor: &mut impl Executor) -> Result<(Vec<f32>, Vec<f32>), Fault> {
    let rows = TOKENS * DIM;
    let x = filled(executor, "x", &noise(1, rows))?;
    let y = filled(executor, "y", &noise(2, rows))?;
    let g = filled(executor, "g", &noise(3, DIM))?;
    let out = filled(executor, "out", &vec![0.0; rows])?;
    let rstd = filled(executor, "rstd", &[0.0; TOKENS])?;
    let act_format = ActFormat::F32;
    let (tokens, dim4) = (CountId(0), DIM as u32 / 4);
    let norm = rms_norm::dispatch(
        executor.caps(),
        act_format,
        rms_norm::RmsNormParams {
            dim4,
            act_stride: act_format.stride(DIM as u32),
            eps: 1e-5,
        },
        tokens,
        rms_norm::Buffers { x, g, out, rstd },
    );
    let sum = residual::dispatch(residual::ResidualParams { dim4 }, tokens, y, x);
    let commands = [sum, norm].map(|dispatch| Command::Dispatch(Box::new(dispatch)));
    let program = Program::new("self check", commands.into());
    let args = StepArgs {
        upload: None,
        counts: vec![TOKENS as u32],
    };
    executor.launch(&program, &args)?;
    let sum = floats(executor, x).await?;
    let mut norm = floats(executor, out).await?;
    let rstd = floats(executor, rstd).await?;
    for (row, rstd) in norm.chunks_mut(DIM).zip(rstd) {
        row.iter_mut().for_each(|value| *value *= rstd);
    }
    Ok((sum, norm))
}

fn filled(
    executor: &mut impl Executor,
    label: &str,
    values: &[f32],
) -> Result<Slice, ExecutorError> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let buffer = executor.create_buffer(label, bytes.len() as u64)?;
    executor.write(buffer, 0, bytes)?;
    Ok(Slice::whole(buffer, bytes.len() as u64))
}

async fn floats(executor: &mut impl Executor, slice: Slice) -> Result<Vec<f32>, ExecutorError> {
    let bytes = executor.read(slice.buffer, 0..slice.bytes).await?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// Values in [-1, 1) from a hash of their place, so that no two are related.
fn noise(seed: u32, count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| {
            let mut hash = (i ^ seed.rotate_left(16)).wrapping_mul(0x9e37_79b9);
            hash = (hash ^ (hash >> 15)).wrapping_mul(0x85eb_ca6b);
            hash ^= hash >> 13;
            (hash >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// The largest difference relative to the largest of 1 and the expected value's magnitude.
fn compare(
    kernel: &'static str,
    got: &[f32],
    expected: &[f32],
    tolerance: f32,
) -> Result<f32, Fault> {
    let mut largest = 0f32;
    for (at, &expected) in expected.iter().enumerate() {
        // A value that is missing or not a number differs from everything.
        let got = got.get(at).copied().unwrap_or(f32::NAN);
        let difference = (got - expected).abs() / expected.abs().max(1.0);
        if difference.is_nan() || difference > tolerance {
            return Err(Fault::Differs {
                kernel,
                at,
                got,
                expected,
            });
        }
        largest = largest.max(difference);
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_bit_is_found() {
        let expected = noise(1, 64);
        assert_eq!(compare("k", &expected, &expected, 0.0).ok(), Some(0.0));
        let mut got = expected.clone();
        got[40] = f32::from_bits(got[40].to_bits() ^ 1);
        assert!(compare("k", &got, &expected, 0.0).is_err());
        assert!(compare("k", &got[..39], &expected, 1.0).is_err());
        got[40] = f32::NAN;
        assert!(compare("k", &got, &expected, 1.0).is_err());
    }
}
