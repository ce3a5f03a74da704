//! Root-mean-square norm of query and key heads (Henry et al. 2020, arXiv:2010.04245, with the mean
//! square in place of the length), each head by itself, in place on rows f32 `[q heads][k heads]…`.
//!
//! The chain: `rstd` of a head as [`rms_norm`](super::rms_norm) has it of a row, then
//! `(v · rstd) · g`.

use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `head_norm`.
    pub struct HeadNormParams {
        /// Query heads, from the start of each row.
        pub heads: u32,
        /// Key heads, behind them.
        pub kv_heads: u32,
        /// Elements a head / 4.
        pub head_dim4: u32,
        /// Elements from row to row / 4.
        pub stride4: u32,
        /// Added to the mean square.
        pub eps: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "head_norm",
    bodies: bodies!["head_norm"],
    bindings: bindings![gains: Read, x: ReadWrite],
    params: HeadNormParams::FIELDS,
    variants: || [DeviceKind::Cpu, DeviceKind::Gpu].map(key).into(),
};

fn key(kind: DeviceKind) -> KernelKey {
    let lanes = match kind {
        DeviceKind::Cpu => 8,
        DeviceKind::Gpu => 32,
    };
    KernelKey::plain("head_norm", "head_norm").constant("LANES", lanes)
}

/// Norms the heads of the step's tokens: gains f32 `[2][head_dim]`, of queries and of keys.
pub fn dispatch(
    caps: &Caps,
    params: HeadNormParams,
    tokens: CountId,
    gains: Slice,
    x: Slice,
) -> Dispatch {
    let key = key(caps.kind);
    let lanes = key.value("LANES");
    let elements = f64::from(lanes * 4 * params.head_dim4);
    Dispatch {
        key,
        bindings: vec![gains, x],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed((params.heads + params.kv_heads).div_ceil(lanes)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 12.0 * elements,
            flops: 4.0 * elements,
        },
    }
}
