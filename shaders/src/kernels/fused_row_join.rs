//! A matrix into the residual stream and the norm behind it in one, for steps of one token on processors: the
//! bits of [`matmul`](super::matmul) and [`rms_norm`](super::rms_norm) one after the other, but for the
//! reciprocal root mean square, of which the sums are stored. See [`fused_row`].

use super::act::ActFormat;
use super::fused_row::{self, RowMatrix};
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch, Slice};

params! {
    /// Parameters of `fused_row_join`.
    pub struct FusedRowJoinParams {
        /// Rows, a multiple of 32.
        pub rows: u32,
        /// Groups of 32 a row.
        pub groups: u32,
        /// Stride of the input's format.
        pub act_stride: u32,
        /// First word of the bias; `u32::MAX` where there is none.
        pub bias: u32,
        /// First of the norm's gains, four at a time.
        pub gains4: u32,
        /// Stride of the output's format.
        pub out_stride: u32,
        /// First chunk of the sums of squares in the output.
        pub slots4: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "fused_row_join",
    bodies: bodies!["fused_row_join"],
    bindings: bindings![act: Read, w: Read, ws: Read, constants: Read, x: ReadWrite, act_out: ReadWrite],
    params: FusedRowJoinParams::FIELDS,
    variants: || {
        fused_row::formats()
            .map(|(_, format, act_format)| {
                with(
                    fused_row::key(&KERNEL, format, act_format, PACKS),
                    act_format,
                )
            })
            .collect()
    },
};

/// Of a lane: the residual stream is narrow, and every core shall have some of it.
const PACKS: u32 = 1;

fn with(key: KernelKey, act_format: ActFormat) -> KernelKey {
    let (act, chunk) = match act_format {
        ActFormat::Int8 => ("act_int8", "chunk_int8"),
        ActFormat::F32 | ActFormat::F16 => ("act_f32", "chunk_f32"),
    };
    key.module("groups", "row_groups")
        .module("squares", "squares")
        .module("act", act)
        .module("chunk", chunk)
}

/// Windows of `fused_row_join` beyond the matrix's.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Residual stream, f32 `[rows]`, to which is added.
    pub x: Slice,
    /// Gains of the norm, f32 `[rows]`, inside the constants.
    pub gains: Slice,
    /// x ∘ gains as the next matrix's input, and the sums of squares behind it.
    pub out: Slice,
}

/// `x += act Wᵀ + bias`, and x ∘ gains; `None` where rows are no whole groups.
pub fn dispatch(matrix: &RowMatrix, tokens: CountId, buffers: Buffers) -> Option<Dispatch> {
    if !matrix.rows.is_multiple_of(32) {
        return None;
    }
    let gains = matrix.word(buffers.gains);
    assert!(gains.is_multiple_of(4), "bindings begin at whole vectors");
    let params = FusedRowJoinParams {
        rows: matrix.rows,
        groups: matrix.groups,
        act_stride: matrix.act_stride(),
        bias: matrix.bias_word(),
        gains4: gains / 4,
        out_stride: matrix.act_format.stride(matrix.rows),
        slots4: fused_row::squares_at4(matrix.act_format, matrix.rows / 32),
    };
    let mut bindings = matrix.bindings();
    bindings.extend([buffers.x, buffers.out]);
    let key = fused_row::key(&KERNEL, matrix.format, matrix.act_format, PACKS);
    Some(Dispatch {
        key: with(key, matrix.act_format),
        bindings,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: matrix.grid(PACKS, tokens),
        cost: matrix.cost(PACKS),
    })
}
