//! Bounds values softly (Gemma 2, arXiv:2408.00118 §2): `y = cap · tanh(y / cap)` in place, f32
//! `[rows][dim]`. Owns the formula, which attention applies to its scores too.
//!
//! With x = y / cap: for |x| < 1/4 the series `y + y·x²·(−1/3 + x²·(2/15 + x²·(−17/315 + x²·62/2835)))`,
//! elsewhere `±(cap − 2·cap · e / (1 + e))` with `e = exp(−2|x|)`, which cannot overflow. Against the
//! exact value the error is a few units in the last place, plus that of the device's `exp`.

use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `softcap`.
    pub struct SoftcapParams {
        /// Elements a row.
        pub dim: u32,
        /// The bound; above 0.
        pub cap: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "softcap",
    bodies: bodies!["softcap"],
    bindings: bindings![y: ReadWrite],
    params: SoftcapParams::FIELDS,
    variants: || vec![key()],
};

fn key() -> KernelKey {
    KernelKey::plain("softcap", "softcap").module("softcap", "softcap")
}

/// Bounds the first `rows` rows of `y`.
pub fn dispatch(params: SoftcapParams, rows: CountId, y: Slice) -> Dispatch {
    Dispatch {
        key: key(),
        bindings: vec![y],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim.div_ceil(64)),
            Extent::Count {
                count: rows,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 8.0,
            flops: 64.0 * 20.0,
        },
    }
}
