//! Attention of single queries, split over their keys: a workgroup computes one part of 256 keys
//! for the heads of a key/value head's group and leaves (m, l, o) for `attention_merge`; the result
//! itself of a query that has one part.
//! Chain: [`super::attention`].

use super::act::ActFormat;
use super::attention::{MAX_ROWS, Sharing, cost, lint_parts, part_key};
use super::kv::KvDtype;
use super::step::PART_KEYS;
use super::{bindings, bodies};
use crate::caps::Caps;
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `attention_decode`.
    pub struct AttentionDecodeParams {
        /// Elements from row to row of qkv / 4.
        pub stride4: u32,
        /// First query of each row / 4.
        pub q_at4: u32,
        /// Key/value heads.
        pub kv_heads: u32,
        /// Tokens a page; a multiple of 16.
        pub block_size: u32,
        /// Parts there is room for: [`max_parts`] of the longest context.
        pub max_parts: u32,
        /// Multiplies the queries.
        pub scale: f32,
        /// Keys a query sees, its own included: the last ones; 0 for all.
        pub window: u32,
        /// Bounds the scores: s becomes cap · tanh(s / cap); 0 for none.
        pub softcap: f32,
        /// Group of layers whose block tables are read.
        pub group: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "attention_decode",
    bodies: bodies!["attention_decode_lane", "attention_decode_workgroup"],
    bindings: bindings![qkv: Read, kcache: Read, vcache: Read, step: Read, parts: ReadWrite, act_out: ReadWrite],
    params: AttentionDecodeParams::FIELDS,
    variants: || {
        lint_parts()
            .flat_map(|(sharing, dtype, dim)| {
                // What is stored has nothing to do with what the pages hold, nor with the group.
                let listed = move |&(act_format, group): &(ActFormat, u32)| {
                    act_format.holds_heads(dim)
                        && (act_format == ActFormat::F32 || (dtype == KvDtype::F16 && group == 3))
                };
                let groups = [1, 3, 8, 12].into_iter();
                let all = groups
                    .flat_map(|group| ActFormat::ALL.iter().map(move |&format| (format, group)));
                all.filter(listed)
                    .map(move |(act_format, group)| key(sharing, act_format, dtype, dim, group))
            })
            .collect()
    },
};

fn key(
    sharing: Sharing,
    act_format: ActFormat,
    dtype: KvDtype,
    head_dim: u32,
    group: u32,
) -> KernelKey {
    assert!(act_format.holds_heads(head_dim), "groups straddle heads");
    let rows = group.min(MAX_ROWS);
    let sharing = sharing.of_rows(rows);
    let body = match sharing {
        Sharing::Workgroup => "attention_decode_workgroup",
        Sharing::Uniform | Sharing::Subgroup8 | Sharing::Quads => "attention_decode_lane",
    };
    let key = act_format.fill(KernelKey::plain("attention_decode", body));
    part_key(key, sharing, dtype, head_dim, rows).constant("GROUP", group)
}

/// Windows of `attention_decode`.
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
    /// [`parts_bytes`] of scratch: f32 `[query][head][part]` of o `[dim]`, m, l, 0, 0.
    pub parts: Slice,
    /// Rows of heads · `head_dim` elements.
    pub out: Slice,
    /// Their format.
    pub act_format: ActFormat,
}

/// Bytes of the scratch between `attention_decode` and `attention_merge`.
pub fn parts_bytes(queries: u32, heads: u32, max_parts: u32, head_dim: u32) -> u64 {
    u64::from(queries) * u64::from(heads) * u64::from(max_parts) * u64::from(head_dim + 4) * 4
}

/// Parts a query sees something of that sees `keys` keys and, with a `window` other than 0, only the
/// last ones. They are what is computed, the first of them as part 0.
pub fn parts_of(keys: u32, window: u32) -> u32 {
    let first = match window {
        0 => 0,
        _ => keys.saturating_sub(window),
    };
    keys.div_ceil(PART_KEYS) - first / PART_KEYS
}

/// Most parts of any query up to a context of `keys`.
pub fn max_parts(keys: u32, window: u32) -> u32 {
    let most = keys.div_ceil(PART_KEYS);
    match window {
        0 => most,
        _ => most.min((window - 1).div_ceil(PART_KEYS) + 1),
    }
}

/// The attention of the step's decode queries that have one part, and the parts of the others. `group` is query heads a key/value head; `parts` counts
/// the most [parts](parts_of) one of them sees, at most `max_parts`.
///
/// # Panics
/// When `head_dim` is no multiple of 4 up to [`MAX_HEAD_DIM`](super::attention::MAX_HEAD_DIM), or one that
/// the output's format cannot [hold](ActFormat::holds_heads).
pub fn dispatch(
    caps: &Caps,
    head_dim: u32,
    group: u32,
    params: AttentionDecodeParams,
    queries: CountId,
    parts: CountId,
    buffers: Buffers,
) -> Dispatch {
    Dispatch {
        key: key(
            Sharing::choose(caps, head_dim),
            buffers.act_format,
            buffers.dtype,
            head_dim,
            group,
        ),
        bindings: vec![
            buffers.qkv,
            buffers.kcache,
            buffers.vcache,
            buffers.step,
            buffers.parts,
            buffers.out,
        ],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: queries,
                tile: 1,
            },
            Extent::Fixed(params.kv_heads * group.div_ceil(MAX_ROWS)),
            Extent::Count {
                count: parts,
                tile: 1,
            },
        ],
        cost: cost(buffers.dtype, head_dim, group.min(MAX_ROWS), PART_KEYS),
    }
}
