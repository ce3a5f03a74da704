//! Token embedding: a row of a weight matrix in any format, widened to f32 `[tokens][dim]` and
//! scaled. One
//! dispatch for each window of the table; a token whose id lies in another window is left alone.

use super::weight::WeightFormat;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `embed`.
    pub struct EmbedParams {
        /// Elements a row / 4.
        pub dim4: u32,
        /// Groups of 32 a row, the padding counted.
        pub groups: u32,
        /// First id of the window.
        pub first_row: u32,
        /// Ids of the window.
        pub rows: u32,
        /// Multiplies the rows; 1 leaves them.
        pub scale: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "embed",
    bodies: bodies!["embed"],
    bindings: bindings![w: Read, ws: Read, step: Read, x: ReadWrite],
    params: EmbedParams::FIELDS,
    variants: || {
        WeightFormat::ALL
            .iter()
            .map(|&format| key(format))
            .collect()
    },
};

fn key(format: WeightFormat) -> KernelKey {
    let key = KernelKey::plain("embed", "embed")
        .module("step", "step")
        .module("order", "order_span");
    format.fill(key)
}

/// Windows of `embed`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Quants of the window.
    pub w: Slice,
    /// Scales; `None` for the formats without.
    pub ws: Option<Slice>,
    /// The step buffer.
    pub step: Slice,
    /// Rows of the step's tokens.
    pub x: Slice,
}

/// Embeds the step's tokens.
pub fn dispatch(
    format: WeightFormat,
    params: EmbedParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    Dispatch {
        key: key(format),
        bindings: vec![
            buffers.w,
            buffers.ws.unwrap_or(buffers.w),
            buffers.step,
            buffers.x,
        ],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim4.div_ceil(64)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 64.0 * 32.0,
            flops: 64.0 * 8.0,
        },
    }
}
