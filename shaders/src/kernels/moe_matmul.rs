//! `y = x Wᵀ` where each row of y belongs to a pair (token, chosen expert) and W is that expert's:
//! experts are stacked by rows, in any weight format, and only the chosen ones are read. One
//! dispatch for each window of whole experts; a pair whose expert lies in another is left alone.
//!
//! The chain of an element is [`matmul`](super::matmul)'s, whatever the batch.

use super::act::ActFormat;
use super::matmul::{RowInput, unroll};
use super::weight::{Arithmetic, GROUP, SPAN_GROUPS, WeightFormat};
use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `moe_matmul`.
    pub struct MoeMatmulParams {
        /// Rows of one expert.
        pub rows: u32,
        /// Groups of 32 a row, the padding counted.
        pub groups: u32,
        /// First expert of the window.
        pub first_expert: u32,
        /// Experts of the window.
        pub experts: u32,
        /// Pairs that share an input row: all of a token's, or 1.
        pub share: u32,
        /// Stride of the input's format.
        pub act_stride: u32,
        /// Elements between the outputs of two pairs.
        pub y_stride: u32,
        /// Where a pair's first output lies.
        pub y_offset: u32,
        /// Not 0: multiply by `rstd` of the input row. Set by [`dispatch`].
        pub norm: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "moe_matmul",
    bodies: bodies!["moe_matmul_row", "moe_matmul_gemv"],
    bindings: bindings![act: Read, w: Read, ws: Read, rstd: Read, route: Read, y: ReadWrite],
    params: MoeMatmulParams::FIELDS,
    variants: || {
        let mut keys = Vec::new();
        for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
            for &format in WeightFormat::ALL {
                for &act_format in ActFormat::ALL {
                    keys.push(key(kind, format, act_format));
                }
            }
        }
        keys
    },
};

/// Lanes and rows a lane of the processors' body.
const LANES: u32 = 8;
const ROWS: u32 = 4;

fn key(kind: DeviceKind, format: WeightFormat, act_format: ActFormat) -> KernelKey {
    let arithmetic = match act_format {
        ActFormat::F32 | ActFormat::F16 => Arithmetic::Float,
        ActFormat::Int8 => Arithmetic::Packed,
    };
    let key = match kind {
        DeviceKind::Cpu => KernelKey::plain("moe_matmul", "moe_matmul_row")
            .constant("LANES", LANES)
            .constant("ROWS", ROWS)
            .constant("UNROLL", unroll(format, arithmetic)),
        DeviceKind::Gpu => KernelKey::plain("moe_matmul", "moe_matmul_gemv"),
    };
    let key = key
        .module("input", RowInput::Uniform.module(act_format, arithmetic))
        .module("order", "order_span")
        .module("epilogue", "epilogue_store");
    format.fill_chain(format.fill_for(key, arithmetic), arithmetic)
}

/// Windows of `moe_matmul`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Input, in its format.
    pub act: Slice,
    /// Quants.
    pub w: Slice,
    /// Scales; `None` for the formats without.
    pub ws: Option<Slice>,
    /// f32, one an input row, where the input is x ∘ g of a norm.
    pub rstd: Option<Slice>,
    /// Experts and weights of [`moe_route`](super::moe_route).
    pub route: Slice,
    /// Output, f32.
    pub y: Slice,
}

/// The products of the step's tokens with their `chosen` experts each.
pub fn dispatch(
    caps: &Caps,
    format: WeightFormat,
    act_format: ActFormat,
    params: MoeMatmulParams,
    (tokens, chosen): (CountId, u32),
    buffers: Buffers,
) -> Dispatch {
    let params = MoeMatmulParams {
        norm: u32::from(buffers.rstd.is_some()),
        ..params
    };
    let rows = match caps.kind {
        DeviceKind::Cpu => ROWS * LANES,
        DeviceKind::Gpu => 4 * (64 / params.groups.div_ceil(SPAN_GROUPS).clamp(1, 64)),
    };
    let (row_extent, chosen) = (
        Extent::Fixed(params.rows.div_ceil(rows)),
        Extent::Fixed(chosen),
    );
    let tokens = Extent::Count {
        count: tokens,
        tile: 1,
    };
    let k = f64::from(GROUP * params.groups);
    Dispatch {
        key: key(caps.kind, format, act_format),
        // What a variant does not read is bound to something that it does.
        bindings: vec![
            buffers.act,
            buffers.w,
            buffers.ws.unwrap_or(buffers.w),
            buffers.rstd.unwrap_or(buffers.act),
            buffers.route,
            buffers.y,
        ],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: match caps.kind {
            DeviceKind::Cpu => [chosen, row_extent, tokens],
            DeviceKind::Gpu => [row_extent, chosen, tokens],
        },
        cost: Cost {
            bytes: f64::from(rows) * format.row_bytes(params.groups) as f64
                + 4.0 * (k + f64::from(rows)),
            flops: 2.0 * f64::from(rows) * k,
        },
    }
}
