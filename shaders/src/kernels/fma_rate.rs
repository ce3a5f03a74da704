//! Nothing but multiply-adds, to see how many a device does in a second: the roof that `bench` measures
//! others against. Each lane runs [`CHAINS`] independent chains of four numbers,
//! `v = fma(v, 15/16, c)`, which approach 16 c whatever is rounded, and stores their sum.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, Dispatch, Extent, Slice};

params! {
    /// Parameters of `fma_rate`.
    pub struct FmaRateParams {
        /// Links of every chain.
        pub rounds: u32,
    }
}

/// Chains of a lane: enough for a unit's latency.
pub const CHAINS: u32 = 8;

/// Lanes of a workgroup.
pub const LANES: u32 = 64;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "fma_rate",
    bodies: bodies!["fma_rate"],
    bindings: bindings![y: ReadWrite],
    params: FmaRateParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("fma_rate", "fma_rate")
}

/// Runs as many workgroups as `y`, f32, has room for; a workgroup does
/// `64 · LANES · rounds` operations.
pub fn dispatch(params: FmaRateParams, y: Slice) -> Dispatch {
    let groups = y.bytes / u64::from(4 * LANES);
    Dispatch {
        key: key(),
        bindings: vec![y],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(u32::try_from(groups).unwrap_or(u32::MAX)),
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: f64::from(4 * LANES),
            flops: f64::from(2 * 4 * CHAINS * LANES) * f64::from(params.rounds),
        },
    }
}
