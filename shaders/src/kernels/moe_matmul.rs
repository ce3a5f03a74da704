//! `y = x Wᵀ` where each row of y belongs to a pair (token, chosen expert) and W is that expert's:
//! experts are stacked by rows, in any weight format, and only the chosen ones are read. One
//! dispatch for each window of whole experts; a pair whose expert lies in another is left alone.
//!
//! The bodies are [`matmul`](super::matmul)'s. A workgroup computes a tile of them: one pair, or several
//! of one expert, as [`moe_group`](super::moe_group) puts them, for which it reads and unpacks a row of
//! weights once. The chain of an element is matmul's, whatever the tile and the batch.

use super::act::ActFormat;
use super::matmul::{Regime, variants};
use super::moe_group::Pairs;
use super::weight::WeightFormat;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Dispatch, Extent, Slice};

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
        /// Pairs of a token. Set by [`dispatch`].
        pub chosen: u32,
        /// Pairs that share an input row: all of a token's, or 1.
        pub share: u32,
        /// Where the order of the pairs begins, in words, behind their tiles. Set by [`dispatch`].
        pub order: u32,
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
    bodies: bodies!["matmul_row", "matmul_gemv", "matmul_tile"],
    bindings: bindings![act: Read, w: Read, ws: Read, rstd: Read, pairs: Read, y: ReadWrite],
    params: MoeMatmulParams::FIELDS,
    variants: || variants(key),
};

/// The variant for a weight format and an input's format.
pub fn key(regime: Regime, format: WeightFormat, act_format: ActFormat) -> KernelKey {
    let tile = match regime.tokens() {
        1 => "tile_pair",
        _ => "tile_expert",
    };
    regime
        .key_of(KERNEL.name, format, act_format)
        .module("tile", tile)
        .module("epilogue", "epilogue_store")
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
    /// Where a tile is one pair, experts and weights of [`moe_route`](super::moe_route); else tiles and
    /// order of [`moe_group`](super::moe_group).
    pub pairs: Slice,
    /// Output, f32.
    pub y: Slice,
}

/// The products of a step's pairs, by a regime.
pub fn dispatch(
    regime: Regime,
    format: WeightFormat,
    act_format: ActFormat,
    params: MoeMatmulParams,
    pairs: Pairs,
    buffers: Buffers,
) -> Dispatch {
    let params = MoeMatmulParams {
        chosen: pairs.chosen,
        order: pairs.order(regime.tokens()),
        norm: u32::from(buffers.rstd.is_some()),
        ..params
    };
    let rows = Extent::Fixed(params.rows.div_ceil(regime.rows(params.groups)));
    let (tiles, of_tokens) = match regime.tokens() {
        1 => {
            let tokens = Extent::Count {
                count: pairs.tokens,
                tile: 1,
            };
            (Extent::Fixed(pairs.chosen), tokens)
        }
        tile => (pairs.extent(tile), Extent::Fixed(1)),
    };
    Dispatch {
        key: key(regime, format, act_format),
        // What a variant does not read is bound to something that it does.
        bindings: vec![
            buffers.act,
            buffers.w,
            buffers.ws.unwrap_or(buffers.w),
            buffers.rstd.unwrap_or(buffers.act),
            buffers.pairs,
            buffers.y,
        ],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: match regime {
            // Tiles vary fastest: a processor's core keeps its rows.
            Regime::Row { .. } => [tiles, rows, of_tokens],
            _ => [rows, tiles, of_tokens],
        },
        cost: regime.cost(format, params.groups, regime.tokens()),
    }
}
