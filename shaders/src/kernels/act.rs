//! Formats of a matmul's input: how the kernel that produces it stores it, through the `act` slot, and
//! how matmuls read it, through the `input` slot. Rows are padded with zeros to whole groups of 32.
//!
//! Rounding is written down, so that every device gives the same codes:
//! - F16: the nearest half, ties to even; finite numbers stay finite (at most 65504).
//! - Int8, a group of 32 at a time: with m its largest magnitude, `d = m · (1 / 127)` and codes
//!   `round(x · (127 · (1 / m)))`, ties to even. Where m < 2⁻¹⁰⁰, d and codes are 0; where it is no
//!   finite number d is no number. Beside the codes lie d, `d · f32(Σ codes)`, and the sums of codes
//!   of either half, two 16-bit numbers.

use crate::kernel::KernelKey;

/// How a matmul's input is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActFormat {
    /// Singles, `[token][k]`. The stride counts `vec4<f32>`.
    F32,
    /// IEEE halves, `[token][group][4 chunks of 16 bytes]`. The stride counts groups.
    F16,
    /// Signed bytes, `[token][group][3 chunks]`: codes, then scale and sums. The stride counts groups.
    Int8,
}

impl ActFormat {
    /// Every format.
    pub const ALL: &'static [Self] = &[Self::F32, Self::F16, Self::Int8];

    fn module(self) -> &'static str {
        match self {
            Self::F32 => "act_f32",
            Self::F16 => "act_f16",
            Self::Int8 => "act_int8",
        }
    }

    /// Fills the slots of what stores it.
    pub(crate) fn fill(self, key: KernelKey) -> KernelKey {
        key.module("halves", "halves").module("act", self.module())
    }

    /// The format a variant that stores it was filled with.
    pub(crate) fn stored_by(key: &KernelKey) -> Self {
        Self::find(key, "act", |format| format.module())
    }

    /// The format that a matmul reads.
    pub(crate) fn read_by(key: &KernelKey) -> Self {
        Self::find(key, "input", |format| match format {
            Self::F32 => "input_f32",
            Self::F16 => "input_f16",
            Self::Int8 => "input_int8",
        })
    }

    fn find(key: &KernelKey, slot: &str, prefix: fn(Self) -> &'static str) -> Self {
        let filled = key.slot(slot).unwrap_or_default();
        Self::ALL
            .iter()
            .copied()
            .find(|&format| filled.starts_with(prefix(format)))
            .unwrap_or_else(|| unreachable!("{key} names no format of inputs"))
    }

    /// `act_stride` for rows of `k` elements.
    pub fn stride(self, k: u32) -> u32 {
        match self {
            Self::F32 => 8 * k.div_ceil(32),
            Self::F16 | Self::Int8 => k.div_ceil(32),
        }
    }

    /// Bytes a row of `k` elements takes.
    pub fn row_bytes(self, k: u32) -> u64 {
        u64::from(k.div_ceil(32))
            * match self {
                Self::F32 => 128,
                Self::F16 => 64,
                Self::Int8 => 48,
            }
    }

    /// Whether heads of this size can be stored by themselves: no group of 32 straddles two.
    pub fn holds_heads(self, head_dim: u32) -> bool {
        self == Self::F32 || head_dim.is_multiple_of(32)
    }

    /// Whether a norm's product enters it times the reciprocal of the root mean square: where the
    /// range is small. Elsewhere the matmul multiplies it in last.
    pub fn takes_rstd(self) -> bool {
        self == Self::F16
    }
}
