//! Formats of a matmul's input: how the kernel that produces it stores it, through the `act` slot, and
//! how matmuls read it, through the `input` slot.

use crate::kernel::KernelKey;

/// How a matmul's input is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActFormat {
    /// Singles, `[token][k]`. The stride counts `vec4<f32>`.
    F32,
}

impl ActFormat {
    /// Every format.
    pub const ALL: &'static [Self] = &[Self::F32];

    /// The module that fills the `act` slot of what stores it.
    pub fn module(self) -> &'static str {
        match self {
            Self::F32 => "act_f32",
        }
    }

    /// `act_stride` for rows of `k` elements.
    pub fn stride(self, k: u32) -> u32 {
        match self {
            Self::F32 => k.div_ceil(4),
        }
    }
}

/// The index function of a key's `act` slot: (token, k / 4, stride) to a `vec4` index.
pub(crate) fn index_fn(key: &KernelKey) -> fn(u32, u32, u32) -> u32 {
    match key.slot("act") {
        Some("act_f32") | None => |token, k4, stride| token * stride + k4,
        Some(other) => unreachable!("no act format {other}"),
    }
}
