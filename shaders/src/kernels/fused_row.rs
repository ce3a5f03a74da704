//! What the kernels share that join a matrix to its neighbours on processors: for which steps there are any,
//! how inputs and sums of squares lie, a lane's rows. They give the bits of [`rms_norm`](super::rms_norm),
//! [`matmul`](super::matmul) and what else they stand for, in the classes f32 and int8.
//!
//! A dispatch costs a processor tens of microseconds, as long as a small matrix takes. So a decode step of one
//! token has none that only waits for a sum: [`fused_row_join`](super::fused_row_join), which writes the residual
//! stream, stores what the norm's matrix takes, x ∘ g, as soon as it has a group of 32, and the group's Σx²
//! behind it; what reads that, [`fused_row_qkv`](super::fused_row_qkv) or [`fused_row_glu`](super::fused_row_glu),
//! adds the sums up, in order, and multiplies the reciprocal root mean square in last. In the class f16 it
//! would come first, and is not known then.

use super::act::ActFormat;
use super::matmul::{Regime, unroll};
use super::row_input::RowInput;
use super::weight::{GROUP, WeightFormat};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey};
use crate::program::{Cost, CountId, Extent, Slice};

/// Lanes of a workgroup: a subgroup, whose lanes have four rows of a group each.
const LANES: u32 = 8;

/// Rows that a lane computes together.
const PACK: u32 = 4;

/// Whether a device has them for steps with room for so many tokens.
pub fn offered(caps: &Caps, act_format: ActFormat, tokens: u32) -> bool {
    caps.kind == DeviceKind::Cpu
        && caps.subgroups == Some((LANES, LANES))
        && rstd_module(act_format).is_some()
        && tokens == 1
}

/// A matrix and its one input.
#[derive(Clone, Copy, Debug)]
pub struct RowMatrix {
    /// The input, in its format, of whole groups; behind a norm's lie the squares, a chunk of 16 bytes a group.
    pub act: Slice,
    /// Quants.
    pub w: Slice,
    /// Scales; `None` for the formats without.
    pub ws: Option<Slice>,
    /// Constants of the model, f32.
    pub constants: Slice,
    /// f32, one for each row, inside the constants.
    pub bias: Option<Slice>,
    /// Format of the input: an [`offered`] one.
    pub act_format: ActFormat,
    /// Layout of the rows.
    pub format: WeightFormat,
    /// Rows.
    pub rows: u32,
    /// Groups of 32 a row.
    pub groups: u32,
}

/// First chunk of 16 bytes of the sums of squares behind a norm's product of so many groups, of which each
/// has one.
pub(crate) fn squares_at4(act_format: ActFormat, groups: u32) -> u32 {
    (act_format.row_bytes(GROUP * groups) / 16) as u32
}

/// Bytes of such a product with its sums.
pub fn squared_bytes(act_format: ActFormat, groups: u32) -> u64 {
    16 * u64::from(squares_at4(act_format, groups) + groups)
}

impl RowMatrix {
    /// Its bindings: act, w, ws, constants.
    pub(crate) fn bindings(&self) -> Vec<Slice> {
        vec![self.act, self.w, self.ws.unwrap_or(self.w), self.constants]
    }

    /// First word of a vector inside the constants.
    pub(crate) fn word(&self, vector: Slice) -> u32 {
        super::fused::constant_word(self.constants, vector)
    }

    /// First word of the bias.
    pub(crate) fn bias_word(&self) -> u32 {
        self.bias
            .map_or(super::fused::NO_BIAS, |bias| self.word(bias))
    }

    pub(crate) fn act_stride(&self) -> u32 {
        self.act_format.stride(GROUP * self.groups)
    }

    pub(crate) fn squares_at4(&self) -> u32 {
        squares_at4(self.act_format, self.groups)
    }

    /// The grid of a kernel whose lanes have so many packs.
    pub(crate) fn grid(&self, packs: u32, tokens: CountId) -> [Extent; 3] {
        [
            Extent::Fixed(self.rows.div_ceil(PACK * packs * LANES)),
            Extent::Count {
                count: tokens,
                tile: 1,
            },
            Extent::Fixed(1),
        ]
    }

    /// Of a workgroup.
    pub(crate) fn cost(&self, packs: u32) -> Cost {
        let regime = regime(packs);
        regime.cost(self.format, self.groups, 1)
    }
}

fn regime(packs: u32) -> Regime {
    Regime::Row {
        tokens: 1,
        rows: PACK * packs,
        input: RowInput::Subgroup8,
        lanes: LANES,
    }
}

fn rstd_module(act_format: ActFormat) -> Option<&'static str> {
    match act_format {
        ActFormat::F32 => Some("row_rstd_f32"),
        ActFormat::Int8 => Some("row_rstd_int8"),
        ActFormat::F16 => None,
    }
}

/// The variant of a kernel whose lanes have so many packs, less what it adds.
pub(crate) fn key(
    kernel: &Kernel,
    format: WeightFormat,
    act_format: ActFormat,
    packs: u32,
) -> KernelKey {
    let arithmetic = regime(packs).arithmetic(act_format);
    let key = KernelKey::plain(kernel.name, kernel.bodies[0].name)
        .constant("PACKS", packs)
        .constant("UNROLL", unroll(format, arithmetic))
        .module("input", RowInput::Subgroup8.module(act_format, arithmetic))
        .module("order", "order_span")
        .module("products", "row_products")
        .module("halves", "halves");
    format.fill_chain(format.fill_for(key, arithmetic), arithmetic)
}

/// That with what reads the squares.
pub(crate) fn normed_key(
    kernel: &Kernel,
    format: WeightFormat,
    act_format: ActFormat,
    packs: u32,
) -> KernelKey {
    let rstd = rstd_module(act_format).expect("a format that is offered");
    key(kernel, format, act_format, packs).module("rstd", rstd)
}

/// For every format of weights and every one of inputs a number: what a kernel adds to them need not meet
/// each.
pub(crate) fn formats() -> impl Iterator<Item = (usize, WeightFormat, ActFormat)> {
    let all = WeightFormat::ALL.iter().flat_map(|&format| {
        [ActFormat::Int8, ActFormat::F32].map(|act_format| (format, act_format))
    });
    all.enumerate()
        .map(|(i, (format, act_format))| (i, format, act_format))
}
