//! A norm, gate and up, and GLU in one, for steps of few tokens on GPUs: the bits of
//! [`rms_norm`](super::rms_norm), [`matmul`](super::matmul) and [`glu`](super::glu) one after the other.
//! Rows are gates, then ups; a workgroup has both of its outputs.

use super::act::ActFormat;
use super::fused::{self, NormedMatrix};
use super::glu::Activation;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{CountId, Dispatch, Slice};

params! {
    /// Parameters of `fused_glu`.
    pub struct FusedGluParams {
        /// Gates, and as many ups.
        pub rows: u32,
        /// Groups of 32 a row.
        pub groups: u32,
        /// Tokens there is room for.
        pub tokens: u32,
        /// Packs of four rows a lane.
        pub lane_packs: u32,
        /// First of the gains, four at a time.
        pub gains4: u32,
        /// First word of the bias; `u32::MAX` where there is none.
        pub bias: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
        /// Added to the mean square.
        pub eps: f32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "fused_glu",
    bodies: bodies!["fused_glu_gemv"],
    bindings: bindings![x: Read, w: Read, ws: Read, constants: Read, act_out: ReadWrite],
    params: FusedGluParams::FIELDS,
    variants: || {
        fused::keys(&KERNEL)
            .map(|(i, key)| with(key, Activation::ALL[i / 4 % 2]))
            .collect()
    },
};

fn with(key: KernelKey, activation: Activation) -> KernelKey {
    let act_two = match fused::act_format_of(&key) {
        ActFormat::F16 => "act_two_f16",
        ActFormat::F32 | ActFormat::Int8 => "act_two_f32",
    };
    key.module("activation", activation.module())
        .module("act_two", act_two)
}

/// `out = activation(gate) · up` of the step's tokens, `rows` each (a multiple of 4), as the input of a
/// matmul in the format that the norm enters as.
pub fn dispatch(
    activation: Activation,
    matrix: &NormedMatrix,
    rows: u32,
    tokens: CountId,
    out: Slice,
) -> Dispatch {
    let params = FusedGluParams {
        rows,
        groups: matrix.groups,
        tokens: matrix.tokens,
        lane_packs: matrix.lane_packs,
        gains4: matrix.gains4(),
        bias: matrix.bias_word(),
        act_stride: matrix.act_format.stride(rows),
        eps: matrix.eps,
    };
    let mut bindings = matrix.bindings();
    bindings.push(out);
    Dispatch {
        key: with(matrix.key(&KERNEL), activation),
        bindings,
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: matrix.grid(rows.div_ceil(2), tokens),
        cost: matrix.cost(),
    }
}
