//! Devices by name, from what their makers publish, and from files. Knows no model.
//!
//! A data sheet's numbers are peaks. What of them is reached is an assumption of this file, the same
//! for every device, and no measurement: see [`BANDWIDTH_SHARE`] and its neighbours.

use std::path::Path;

use anyhow::Context;
use twoclock_core::sched::{Hardware, PerRegime};

use super::device_file;
use crate::text_input::read_text;

/// Assumed share of the peak bandwidth that streaming weights reaches.
pub const BANDWIDTH_SHARE: f64 = 0.8;
/// Assumed share of the matrix units' peak in large products.
pub const GEMM_SHARE: f64 = 0.65;
/// The same with 9 to 64 tokens.
pub const SKINNY_SHARE: f64 = 0.3;
/// Assumed share of the vector units' peak with up to 8 tokens.
pub const GEMV_SHARE: f64 = 0.5;
/// Assumed cost of a step, and of a dispatch inside one.
const STEP_OVERHEAD: f64 = 200e-6;
const DISPATCH_OVERHEAD: f64 = 2e-6;

/// Names of devices.
pub const NAMES: [&str; 6] = ["h200", "h100", "a100", "a100-40gb", "rtx4090", "m3max"];

/// What a data sheet says.
struct DataSheet {
    /// TB/s.
    bandwidth: f64,
    /// Dense 16-bit matrix products with 32-bit sums, TFLOP/s.
    matrix: f64,
    /// 32-bit vector arithmetic, TFLOP/s.
    vector: f64,
    /// GiB.
    memory: u64,
    /// GB/s between device and host, one way.
    host: f64,
}

fn data_sheet(name: &str) -> Option<DataSheet> {
    Some(match name {
        // NVIDIA H200 Tensor Core GPU data sheet (SXM; its 1,979 TFLOP/s are with sparsity).
        "h200" => DataSheet {
            bandwidth: 4.8,
            matrix: 989.4,
            vector: 66.9,
            memory: 141,
            host: 64.0,
        },
        // NVIDIA H100 Tensor Core GPU data sheet (SXM5).
        "h100" => DataSheet {
            bandwidth: 3.35,
            matrix: 989.4,
            vector: 66.9,
            memory: 80,
            host: 64.0,
        },
        // NVIDIA A100 Tensor Core GPU data sheet (80 GB SXM).
        "a100" => DataSheet {
            bandwidth: 2.039,
            matrix: 312.0,
            vector: 19.5,
            memory: 80,
            host: 32.0,
        },
        // The same (40 GB), on which PagedAttention and Orca were measured.
        "a100-40gb" => DataSheet {
            bandwidth: 1.555,
            matrix: 312.0,
            vector: 19.5,
            memory: 40,
            host: 32.0,
        },
        // NVIDIA Ada GPU architecture whitepaper, appendix A.
        "rtx4090" => DataSheet {
            bandwidth: 1.008,
            matrix: 165.2,
            vector: 82.6,
            memory: 24,
            host: 32.0,
        },
        // Apple publishes 400 GB/s and 40 cores; the arithmetic is 40 cores × 128 lanes × 2 × 1.4 GHz,
        // and matrix products run on the same lanes. Three quarters of 128 GB may be the GPU's.
        "m3max" => DataSheet {
            bandwidth: 0.4,
            matrix: 14.3,
            vector: 14.3,
            memory: 96,
            host: 200.0,
        },
        _ => return None,
    })
}

/// A device by name, or from a file.
///
/// # Errors
/// No such name nor file, or a file that is not so, naming the field.
pub fn find(reference: &str) -> anyhow::Result<Hardware> {
    if let Some(sheet) = data_sheet(reference) {
        return Ok(Hardware {
            bandwidth: sheet.bandwidth * 1e12 * BANDWIDTH_SHARE,
            flops: PerRegime {
                gemv: sheet.vector * 1e12 * GEMV_SHARE,
                skinny: sheet.matrix * 1e12 * SKINNY_SHARE,
                gemm: sheet.matrix * 1e12 * GEMM_SHARE,
            },
            step_overhead: STEP_OVERHEAD,
            dispatch_overhead: DISPATCH_OVERHEAD,
            memory: sheet.memory << 30,
            host_bandwidth: sheet.host * 1e9 * BANDWIDTH_SHARE,
        });
    }
    let names = NAMES.join(", ");
    let text = read_text(Path::new(reference))
        .with_context(|| format!("{reference:?} is no device ({names}) and no file of one"))?;
    device_file::parse(&text).with_context(|| format!("{reference} describes no device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_device() {
        for name in NAMES {
            find(name).unwrap().check().unwrap();
        }
        let error = format!("{:#}", find("h300").unwrap_err());
        assert!(
            error.contains("h300") && error.contains("rtx4090"),
            "{error}"
        );
    }
}
