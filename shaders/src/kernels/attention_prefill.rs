//! Attention of tiles of queries: consecutive queries of one sequence; a workgroup computes them for
//! one head, or on processors as many pairs of a query and one of the heads that share keys.
//! Chain: [`super::attention`].

use super::act::ActFormat;
use super::attention::{MAX_ROWS, Sharing, cost, lint_parts, part_key};
use super::kv::KvDtype;
use super::step::TILE_QUERIES;
use super::{bindings, bodies};
use crate::caps::Caps;
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `attention_prefill`.
    pub struct AttentionPrefillParams {
        /// Elements from row to row of qkv / 4.
        pub stride4: u32,
        /// First query of each row / 4.
        pub q_at4: u32,
        /// Query heads; a multiple of `kv_heads`.
        pub heads: u32,
        /// Key/value heads.
        pub kv_heads: u32,
        /// Tokens a page; a multiple of 16.
        pub block_size: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
        /// Multiplies the queries.
        pub scale: f32,
        /// Keys a query sees, its own included: the last ones; 0 for all.
        pub window: u32,
        /// Bounds the scores: s becomes cap · tanh(s / cap); 0 for none.
        pub softcap: f32,
        /// Group of layers whose block tables are read.
        pub group: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "attention_prefill",
    bodies: bodies!["attention_prefill_lane", "attention_prefill_workgroup"],
    bindings: bindings![qkv: Read, kcache: Read, vcache: Read, step: Read, act_out: ReadWrite],
    params: AttentionPrefillParams::FIELDS,
    variants: || {
        lint_parts()
            .flat_map(|(sharing, dtype, dim)| {
                // What is stored has nothing to do with what the pages hold.
                let listed = move |act_format: &ActFormat| {
                    act_format.holds_heads(dim)
                        && (*act_format == ActFormat::F32 || dtype == KvDtype::F16)
                };
                let formats = ActFormat::ALL.iter().copied().filter(listed);
                formats.map(move |act_format| key(sharing, act_format, dtype, dim))
            })
            .collect()
    },
};

const _: () = assert!(TILE_QUERIES == MAX_ROWS);

fn key(sharing: Sharing, act_format: ActFormat, dtype: KvDtype, head_dim: u32) -> KernelKey {
    assert!(act_format.holds_heads(head_dim), "groups straddle heads");
    let body = match sharing {
        Sharing::Workgroup => "attention_prefill_workgroup",
        Sharing::Uniform | Sharing::Subgroup8 | Sharing::Quads => "attention_prefill_lane",
    };
    let key = KernelKey::plain("attention_prefill", body);
    act_format.fill(part_key(key, sharing, dtype, head_dim, TILE_QUERIES))
}

/// Windows of `attention_prefill`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// f32 `[tokens][stride]`; queries `[head][dim]`, after `RoPE`.
    pub qkv: Slice,
    /// [Pages](super::kv) of keys; the step's own keys are written.
    pub kcache: Slice,
    /// Pages of values, likewise.
    pub vcache: Slice,
    /// What the pages hold.
    pub dtype: KvDtype,
    /// The step buffer.
    pub step: Slice,
    /// Rows of heads · `head_dim` elements.
    pub out: Slice,
    /// Their format.
    pub act_format: ActFormat,
}

/// Attention of the step's `tiles`; `context` is the length the work is predicted for.
///
/// # Panics
/// When `head_dim` is no multiple of 4 up to [`MAX_HEAD_DIM`](super::attention::MAX_HEAD_DIM), or one that
/// the output's format cannot [hold](ActFormat::holds_heads).
pub fn dispatch(
    caps: &Caps,
    head_dim: u32,
    params: AttentionPrefillParams,
    tiles: CountId,
    context: u32,
    buffers: Buffers,
) -> Dispatch {
    let keys = match params.window {
        0 => context,
        window => context.min(window.saturating_add(TILE_QUERIES - 1)),
    };
    Dispatch {
        key: key(
            Sharing::choose(caps, head_dim),
            buffers.act_format,
            buffers.dtype,
            head_dim,
        ),
        bindings: vec![
            buffers.qkv,
            buffers.kcache,
            buffers.vcache,
            buffers.step,
            buffers.out,
        ],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: tiles,
                tile: 1,
            },
            // A full tile has as many slices a kv head as heads share it.
            Extent::Fixed(params.heads),
            Extent::Fixed(1),
        ],
        cost: cost(buffers.dtype, head_dim, TILE_QUERIES, keys),
    }
}
