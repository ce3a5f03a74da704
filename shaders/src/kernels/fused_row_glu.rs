//! Gate and up of a norm's product and GLU in one, for steps of one token on processors: the bits of
//! [`matmul`](super::matmul) and [`glu`](super::glu) one after the other. Rows are gates, then ups. See
//! [`fused_row`].

use super::act::ActFormat;
use super::fused_row::{self, RowMatrix};
use super::glu::Activation;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch, Slice};

params! {
    /// Parameters of `fused_row_glu`.
    pub struct FusedRowGluParams {
        /// Gates, a multiple of 32, and as many ups.
        pub rows: u32,
        /// Groups of 32 a row.
        pub groups: u32,
        /// Stride of the input's format.
        pub act_stride: u32,
        /// First word of the bias; `u32::MAX` where there is none.
        pub bias: u32,
        /// First chunk of the sums of squares in the input.
        pub slots4: u32,
        /// Added to the mean square.
        pub eps: f32,
        /// Stride of the output's format.
        pub out_stride: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "fused_row_glu",
    bodies: bodies!["fused_row_glu"],
    bindings: bindings![act: Read, w: Read, ws: Read, constants: Read, act_out: ReadWrite],
    params: FusedRowGluParams::FIELDS,
    variants: || {
        fused_row::formats()
            .map(|(i, format, act_format)| {
                let key = fused_row::normed_key(&KERNEL, format, act_format, PACKS);
                with(key, act_format, Activation::ALL[i / 2 % 2])
            })
            .collect()
    },
};

/// Of a lane: gates and their ups.
const PACKS: u32 = 2;

fn with(key: KernelKey, act_format: ActFormat, activation: Activation) -> KernelKey {
    let act = match act_format {
        ActFormat::Int8 => "act_int8",
        ActFormat::F32 | ActFormat::F16 => "act_f32",
    };
    key.module("groups", "row_groups")
        .module("act", act)
        .module("activation", activation.module())
}

/// `out = activation(gate) · up`, half the matrix's rows, as the input of a matmul in the format of the
/// input; `None` where those are no whole groups.
pub fn dispatch(
    activation: Activation,
    matrix: &RowMatrix,
    eps: f32,
    tokens: CountId,
    out: Slice,
) -> Option<Dispatch> {
    if !matrix.rows.is_multiple_of(2 * 32) {
        return None;
    }
    let params = FusedRowGluParams {
        rows: matrix.rows / 2,
        groups: matrix.groups,
        act_stride: matrix.act_stride(),
        bias: matrix.bias_word(),
        slots4: matrix.squares_at4(),
        eps,
        out_stride: matrix.act_format.stride(matrix.rows / 2),
    };
    let mut bindings = matrix.bindings();
    bindings.push(out);
    let key = fused_row::normed_key(&KERNEL, matrix.format, matrix.act_format, PACKS);
    Some(Dispatch {
        key: with(key, matrix.act_format, activation),
        bindings,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: matrix.grid(PACKS, tokens),
        cost: matrix.cost(PACKS),
    })
}
