//! Rows f32 `[tokens][dim]` as a matmul's input, for what its producer cannot store so: heads whose sizes
//! are no multiples of 32 share groups.

use super::act::ActFormat;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `quantize`.
    pub struct QuantizeParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "quantize",
    bodies: bodies!["quantize"],
    bindings: bindings![x: Read, act_out: ReadWrite],
    params: QuantizeParams::FIELDS,
    variants: || [ActFormat::F16, ActFormat::Int8].map(key).into(),
};

fn key(act_format: ActFormat) -> KernelKey {
    act_format.fill(KernelKey::plain("quantize", "quantize"))
}

/// Stores the rows of the step's tokens in the format.
pub fn dispatch(
    act_format: ActFormat,
    params: QuantizeParams,
    tokens: CountId,
    x: Slice,
    out: Slice,
) -> Dispatch {
    Dispatch {
        key: key(act_format),
        bindings: vec![x, out],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim4.div_ceil(8 * 32)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 256.0 * 24.0,
            flops: 256.0 * 40.0,
        },
    }
}
