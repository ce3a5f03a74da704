//! Gated linear unit (Shazeer 2020, arXiv:2002.05202): `out = activation(gate) · up`, from rows f32
//! `[rows][2 dim]` (gate, then up) into the next matmul's input format. A token has one row, or as
//! many as it has experts.
//!
//! The chain: `SiLU` is `x / (1 + exp(−x))`; GELU's tanh approximation (Hendrycks & Gimpel 2016,
//! arXiv:1606.08415) is `x / (1 + exp(−(x · t)))` with `t = fma(x · x, 2 √(2/π) · 0.044715, 2 √(2/π))`.

use super::act::ActFormat;
use super::{bindings, bodies};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `glu`.
    pub struct GluParams {
        /// Elements of the result / 4.
        pub dim4: u32,
        /// Stride of the output's format.
        pub act_stride: u32,
    }
}

/// What gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 2] = [Self::Silu, Self::GeluTanh];

    /// That of a variant.
    pub(crate) fn of(key: &KernelKey) -> Self {
        match key.slot("activation") == Some(Self::GeluTanh.module()) {
            true => Self::GeluTanh,
            false => Self::Silu,
        }
    }

    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Silu => "activation_silu",
            Self::GeluTanh => "activation_gelu_tanh",
        }
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "glu",
    bodies: bodies!["glu"],
    bindings: bindings![gate_up: Read, act_out: ReadWrite],
    params: GluParams::FIELDS,
    variants: || {
        ActFormat::ALL
            .iter()
            .flat_map(|&act_format| Activation::ALL.map(|activation| key(activation, act_format)))
            .collect()
    },
};

fn key(activation: Activation, act_format: ActFormat) -> KernelKey {
    act_format
        .fill(KernelKey::plain("glu", "glu"))
        .module("activation", activation.module())
}

/// Gates the rows of the step's tokens, `rows` each.
pub fn dispatch(
    activation: Activation,
    act_format: ActFormat,
    params: GluParams,
    (tokens, rows): (CountId, u32),
    gate_up: Slice,
    out: Slice,
) -> Dispatch {
    Dispatch {
        key: key(activation, act_format),
        bindings: vec![gate_up, out],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.dim4.div_ceil(8 * 32)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(rows),
        ],
        cost: Cost {
            bytes: 256.0 * 48.0,
            flops: 256.0 * 20.0,
        },
    }
}
