//! What the kernels share that make a norm on the way into a matrix: for which steps there are any, what a
//! lane has, their bindings of constants. They give the bits of [`rms_norm`](super::rms_norm) and
//! [`matmul`](super::matmul) one after the other in the classes f32 and f16.
//!
//! Every workgroup makes the norm of what it reads: about 20 operations an element and token in halves,
//! which the rows of a lane share. So a lane of a large matrix has sixteen rows, and steps of more tokens
//! than [`MAX_TOKENS`] are left to kernels of their own: the more tokens, the more one dispatch fewer costs.

use super::act::ActFormat;
use super::weight::{Arithmetic, GROUP, SPAN_GROUPS, WeightFormat};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey};
use crate::program::{Cost, CountId, Extent, Slice};

/// Most tokens of a step that these kernels are for.
pub const MAX_TOKENS: u32 = 2;

/// Rows that a lane computes together.
const PACK: u32 = 4;

/// Packs of a lane whose matrix is large.
const MOST_LANE_PACKS: u32 = 4;

/// Workgroups that keep any GPU busy.
const MANY_WORKGROUPS: u32 = 128;

/// `bias` of parameters where there is none.
pub(crate) const NO_BIAS: u32 = u32::MAX;

/// Whether a device has them for steps of so many tokens whose residual stream is `dim` wide. Cooperative
/// matrices have another chain.
pub fn offered(caps: &Caps, act_format: ActFormat, tokens: u32, dim: u32) -> bool {
    caps.kind == DeviceKind::Gpu
        && caps.coop.is_none()
        && norm_module(act_format).is_some()
        && tokens <= MAX_TOKENS
        // Whole groups, of two spans at least.
        && dim.is_multiple_of(GROUP)
        && dim > GROUP * SPAN_GROUPS
}

/// Packs of four rows that a lane has, of a matrix of so many rows of so many groups.
pub fn lane_packs(rows: u32, groups: u32) -> u32 {
    let workgroups = rows / (PACK * MOST_LANE_PACKS * lanes_of_a_span(groups));
    match workgroups >= MANY_WORKGROUPS {
        true => MOST_LANE_PACKS,
        false => 1,
    }
}

/// Lanes of a workgroup that have the same span of other rows.
fn lanes_of_a_span(groups: u32) -> u32 {
    64 / groups.div_ceil(SPAN_GROUPS).clamp(1, 64)
}

/// First word of a vector inside the constants.
pub(crate) fn constant_word(constants: Slice, vector: Slice) -> u32 {
    assert_eq!(vector.buffer, constants.buffer, "a constant");
    ((vector.offset - constants.offset) / 4) as u32
}

/// The input of a norm and its matrix.
#[derive(Clone, Copy, Debug)]
pub struct NormedMatrix {
    /// f32 `[tokens][32 groups]`.
    pub x: Slice,
    /// Quants.
    pub w: Slice,
    /// Scales; `None` for the formats without.
    pub ws: Option<Slice>,
    /// Constants of the model, f32.
    pub constants: Slice,
    /// Gains, f32 `[32 groups]`, inside the constants.
    pub gains: Slice,
    /// f32, one for each row, inside the constants.
    pub bias: Option<Slice>,
    /// What the norm enters the matrix as: [`offered`] formats.
    pub act_format: ActFormat,
    /// Layout of the rows.
    pub format: WeightFormat,
    /// Groups of 32 a row.
    pub groups: u32,
    /// Tokens there is room for, at most [`MAX_TOKENS`].
    pub tokens: u32,
    /// As [`lane_packs`] says; 1 to 4, and no number changes a bit.
    pub lane_packs: u32,
    /// Added to the mean square.
    pub eps: f32,
}

impl NormedMatrix {
    /// Its bindings: x, w, ws, constants.
    pub(crate) fn bindings(&self) -> Vec<Slice> {
        vec![self.x, self.w, self.ws.unwrap_or(self.w), self.constants]
    }

    /// First word of a vector inside the constants.
    pub(crate) fn word(&self, vector: Slice) -> u32 {
        constant_word(self.constants, vector)
    }

    /// First of the gains, four at a time.
    pub(crate) fn gains4(&self) -> u32 {
        let word = self.word(self.gains);
        assert!(word.is_multiple_of(4), "bindings begin at whole vectors");
        word / 4
    }

    /// First word of the bias.
    pub(crate) fn bias_word(&self) -> u32 {
        self.bias.map_or(NO_BIAS, |bias| self.word(bias))
    }

    fn tile(&self) -> u32 {
        self.tokens.clamp(1, MAX_TOKENS).next_power_of_two()
    }

    /// The variant, less what a kernel adds.
    pub(crate) fn key(&self, kernel: &Kernel) -> KernelKey {
        key(kernel, self.format, self.act_format, self.tile())
    }

    /// The grid of so many packs of four rows.
    pub(crate) fn grid(&self, packs: u32, tokens: CountId) -> [Extent; 3] {
        let tile = self.tile();
        [
            Extent::Fixed(packs.div_ceil(self.packs())),
            Extent::Count {
                count: tokens,
                tile,
            },
            Extent::Fixed(1),
        ]
    }

    /// Packs of a workgroup.
    fn packs(&self) -> u32 {
        self.lane_packs * lanes_of_a_span(self.groups)
    }

    /// Of a workgroup.
    pub(crate) fn cost(&self) -> Cost {
        let (rows, tokens) = (f64::from(PACK * self.packs()), f64::from(self.tile()));
        let k = f64::from(GROUP * self.groups);
        Cost {
            bytes: rows * self.format.row_bytes(self.groups) as f64 + 4.0 * tokens * (k + rows),
            flops: 2.0 * rows * tokens * k,
        }
    }
}

/// The module by which a norm enters a matrix in a format; a group of bytes would take all of its rows.
fn norm_module(act_format: ActFormat) -> Option<&'static str> {
    match act_format {
        ActFormat::F32 => Some("norm_f32"),
        ActFormat::F16 => Some("norm_f16"),
        ActFormat::Int8 => None,
    }
}

/// What the norm of a variant enters as.
pub(crate) fn act_format_of(key: &KernelKey) -> ActFormat {
    match key.slot("norm") == norm_module(ActFormat::F16) {
        true => ActFormat::F16,
        false => ActFormat::F32,
    }
}

fn key(kernel: &Kernel, format: WeightFormat, act_format: ActFormat, tokens: u32) -> KernelKey {
    let norm = norm_module(act_format).expect("a format that is offered");
    let key = KernelKey::plain(kernel.name, kernel.bodies[0].name)
        .constant("TOKENS", tokens)
        .constant("LANE_PACKS", MOST_LANE_PACKS)
        .module("order", "order_span")
        .module("halves", "halves")
        .module("norm", norm)
        .module("gemv", "gemv_norm");
    format.fill_chain(format.fill(key), Arithmetic::Float)
}

/// For every format of weights one key of each choice, with its number: what a kernel adds to them need
/// not meet each.
pub(crate) fn keys(kernel: &Kernel) -> impl Iterator<Item = (usize, KernelKey)> {
    let keys = WeightFormat::ALL.iter().flat_map(move |&format| {
        [
            (ActFormat::F32, 1),
            (ActFormat::F16, 1),
            (ActFormat::F16, MAX_TOKENS),
            (ActFormat::F32, MAX_TOKENS),
        ]
        .map(|(act_format, tokens)| key(kernel, format, act_format, tokens))
    });
    keys.enumerate()
}
