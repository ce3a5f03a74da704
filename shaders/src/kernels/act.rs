//! Layouts of a matmul's input. The kernel that produces it stores through the `act` slot, so that
//! each regime reads in the order its lanes want.
//!
//! Inputs are stored as `vec4<f32>` of four consecutive k; `act_stride` is the layout's one number.

use crate::kernel::KernelKey;

/// Where four consecutive elements of a token's row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActLayout {
    /// `[token][k / 4]`; the stride is k / 4.
    Rows,
}

impl ActLayout {
    /// Every layout.
    pub const ALL: &'static [Self] = &[Self::Rows];

    /// The module that fills the `act` slot.
    pub fn module(self) -> &'static str {
        match self {
            Self::Rows => "act_rows",
        }
    }

    /// `act_stride` for rows of `k` elements and room for `tokens`.
    pub fn stride(self, k: u32, _tokens: u32) -> u32 {
        match self {
            Self::Rows => k.div_ceil(4),
        }
    }
}

/// The index function of a key's `act` slot: (token, k / 4, stride) to a `vec4` index.
pub(crate) fn index_fn(key: &KernelKey) -> fn(u32, u32, u32) -> u32 {
    match key.slot("act") {
        Some("act_rows") | None => |token, k4, stride| token * stride + k4,
        Some(other) => unreachable!("no act layout {other}"),
    }
}
