//! `y = x Wᵀ` for every weight format: x `[tokens][K]` in an [`ActFormat`], W as
//! [`weight`](super::weight) says, y f32 `[tokens][rows]`.
//!
//! The chain, the same for every element whatever the number of tokens and the body. In the classes f32
//! (exact) and f16, where x is what the format holds, and with w the codes: whole numbers as [`WeightFormat`] says, `Q6_K` and `Q3_K` times the scale
//! of their half of the group (still whole numbers, and exact), tables looked up; the weights
//! themselves for F32, F16, BF16 and `Q2_K`:
//! - a group of 32: `p4 = 0`; for j in 0..8 `p4 = fma(w4[j], x4[j], p4)`, component c holding
//!   k = 4 j + c; `p = (p4.x + p4.y) + (p4.z + p4.w)`. `xs`, its sum of inputs, likewise with `+`;
//! - a span of four groups (the last may be short): `a = 0`; a group after a group
//!   `a = fma(d, p, a)`, then with an offset `a = fma(m, xs, a)` (`Q4_0`: m = −8 d; `Q5_0`: −16 d;
//!   `Q4_K`, `Q5_K`: d and m already times the group's own); where w are weights `a = a + p`;
//! - `t = 0`; a span after a span `t = t + a`. The result is `fma(t, rstd, b)`: rstd of the token
//!   where the input is x ∘ g of a norm, else 1, and the bias, else 0. y becomes it, or `y + it`.
//!
//! In the class int8, with q the codes of a group of inputs, `d_x` their scale and xs `d_x · Σq` as
//! [`act`](super::act) says, a group adds to a span otherwise, and all else is the same:
//! - I, the dot of w and q, is a whole number under 2²⁴, so exact in any order and in singles too; half
//!   scales join it (`I = s₀ · I₀ + s₁ · I₁`). `a = fma(d · d_x, I, a)`, then with an offset
//!   `a = fma(m, xs, a)`;
//! - `Q2_K`, whose w are here s q: then `a = fma(−dmin · d_x, m₀ · Σ₀q + m₁ · Σ₁q, a)`;
//! - F32, F16, BF16: p as above over w and q, `a = fma(d_x, p, a)`.

pub use super::matmul_regime::{LEAST_ROWS, Needs, Regime};
pub use super::row_input::RowInput;

use super::act::ActFormat;
use super::matmul_regime::of_every_device;
use super::weight::{Arithmetic, GROUP, WeightFormat};
use super::{bindings, bodies};
use crate::caps::Caps;
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `matmul`.
    pub struct MatmulParams {
        /// Rows of the bound weights.
        pub rows: u32,
        /// Groups of 32 a row, the padding counted.
        pub groups: u32,
        /// Tokens the input and output have room for; what lies behind is neither read nor written.
        pub tokens: u32,
        /// Stride of the input's format.
        pub act_stride: u32,
        /// Elements between the outputs of two tokens.
        pub y_stride: u32,
        /// Where a token's first output lies: not 0 for a later window of rows.
        pub y_offset: u32,
        /// Not 0: multiply by `rstd`. Set by [`dispatch`].
        pub norm: u32,
        /// Not 0: add `bias`. Set by [`dispatch`].
        pub bias: u32,
        /// Not 0: add to what y holds.
        pub add: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "matmul",
    bodies: bodies!["matmul_row", "matmul_gemv", "matmul_tile"],
    bindings: bindings![act: Read, w: Read, ws: Read, rstd: Read, bias: Read, y: ReadWrite],
    params: MatmulParams::FIELDS,
    variants: || {
        let mut keys = variants(Regime::key);
        // Of a vocabulary in every format; what else tuning may choose in one.
        let of_many: Vec<_> = of_every_device(|caps| {
            let usual = Regime::all(caps).into_iter();
            usual.map(|r| r.for_rows(u32::MAX, &caps.tuning)).collect()
        });
        for &format in WeightFormat::ALL {
            for regime in of_many.iter().chain(&of_every_device(Regime::others)) {
                if format == WeightFormat::Q4_0 || of_many.contains(regime) {
                    keys.extend(ActFormat::ALL.iter().map(|&act| regime.key(format, act)));
                }
            }
        }
        let mut known = std::collections::HashSet::new();
        keys.retain(|key| known.insert(key.clone()));
        keys
    },
};

impl Regime {
    /// How it takes the codes: a processor has fused multiply-adds for several tokens at a time, and
    /// whole numbers that are small enough are exact either way.
    pub(super) fn arithmetic(self, act_format: ActFormat) -> Arithmetic {
        match (act_format, self) {
            (ActFormat::F32 | ActFormat::F16, _) => Arithmetic::Float,
            (ActFormat::Int8, Self::Row { tokens: 2.., .. }) => Arithmetic::Whole,
            (ActFormat::Int8, _) => Arithmetic::Packed,
        }
    }

    /// The variant for a weight format and an input's format.
    pub fn key(self, format: WeightFormat, act_format: ActFormat) -> KernelKey {
        self.key_of(KERNEL.name, format, act_format)
            .constant("STEP", self.token_step())
            .module("tile", "tile_tokens")
            .module("epilogue", "epilogue_join")
    }

    /// A variant of a kernel that has these bodies, but for its tiles and its epilogue.
    pub(super) fn key_of(
        self,
        kernel: &'static str,
        format: WeightFormat,
        act_format: ActFormat,
    ) -> KernelKey {
        let arithmetic = self.arithmetic(act_format);
        let uniform = RowInput::Uniform.module(act_format, arithmetic);
        let key = match self {
            Self::Row {
                tokens,
                rows,
                input,
                lanes,
            } => KernelKey::plain(kernel, "matmul_row")
                .constant("LANES", lanes)
                .constant("ROWS", rows)
                .constant("TOKENS", tokens)
                .constant("UNROLL", unroll(format, arithmetic))
                .module("input", input.module(act_format, arithmetic)),
            Self::Gemv { tokens, lanes } => KernelKey::plain(kernel, "matmul_gemv")
                .constant("LANES", lanes)
                .constant("TOKENS", tokens)
                .module("input", uniform),
            Self::Tile { rows, tokens } => KernelKey::plain(kernel, "matmul_tile")
                .constant("LANES_ROW", rows / 4)
                .constant("LANES_TOKEN", tokens / 4)
                .module("input", uniform),
        };
        let key = key.module("order", "order_span");
        format.fill_chain(format.fill_for(key, arithmetic), arithmetic)
    }

    /// Work of a workgroup that computes so many of its tokens, with their share of the weights.
    pub(super) fn cost(self, format: WeightFormat, groups: u32, tokens: u32) -> Cost {
        let (rows, tokens) = (f64::from(self.rows(groups)), f64::from(tokens));
        let k = f64::from(GROUP * groups);
        let weights = rows * format.row_bytes(groups) as f64;
        Cost {
            bytes: tokens / f64::from(self.tokens()) * weights + 4.0 * tokens * (k + rows),
            flops: 2.0 * rows * tokens * k,
        }
    }
}

/// Whether a lane's rows are written out, which is faster where a row is little code.
pub(super) fn unroll(format: WeightFormat, arithmetic: Arithmetic) -> u32 {
    u32::from(format.is_packed(arithmetic))
}

/// The dimension of a variant's grid that counts tiles of tokens, or of pairs.
pub(crate) fn tile_dimension(key: &KernelKey) -> usize {
    usize::from(key.body != "matmul_row")
}

/// The variants of a kernel that has these bodies, of any device, in their usual shapes.
pub(super) fn variants(key: fn(Regime, WeightFormat, ActFormat) -> KernelKey) -> Vec<KernelKey> {
    let mut keys = Vec::new();
    for regime in of_every_device(Regime::all) {
        for &format in WeightFormat::ALL {
            keys.extend(ActFormat::ALL.iter().map(|&act| key(regime, format, act)));
        }
    }
    keys
}

/// Windows of `matmul`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Input, in its format.
    pub act: Slice,
    /// Quants.
    pub w: Slice,
    /// Scales; `None` for the formats without.
    pub ws: Option<Slice>,
    /// f32 `[tokens]`, where the input is x ∘ g of a norm.
    pub rstd: Option<Slice>,
    /// f32, read where y is written: an element for each of a token's outputs, from the first.
    pub bias: Option<Slice>,
    /// Output, f32.
    pub y: Slice,
}

impl Buffers {
    /// In the kernel's order; what a variant does not read is bound to something that it does.
    pub(super) fn bindings(self) -> Vec<Slice> {
        vec![
            self.act,
            self.w,
            self.ws.unwrap_or(self.w),
            self.rstd.unwrap_or(self.act),
            self.bias.unwrap_or(self.act),
            self.y,
        ]
    }
}

/// A matmul of the step's `tokens` tokens, by the regime that suits the device and the room.
pub fn dispatch(
    caps: &Caps,
    format: WeightFormat,
    act_format: ActFormat,
    params: MatmulParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    let regime = Regime::choose(caps, params.tokens).for_rows(params.rows, &caps.tuning);
    dispatch_regime(regime, format, act_format, params, tokens, buffers)
}

/// A matmul by a given regime.
pub fn dispatch_regime(
    regime: Regime,
    format: WeightFormat,
    act_format: ActFormat,
    params: MatmulParams,
    tokens: CountId,
    buffers: Buffers,
) -> Dispatch {
    let params = MatmulParams {
        norm: u32::from(buffers.rstd.is_some()),
        bias: u32::from(buffers.bias.is_some()),
        ..params
    };
    let rows = regime.rows(params.groups);
    let token_extent = Extent::Count {
        count: tokens,
        tile: regime.token_step(),
    };
    let row_extent = Extent::Fixed(params.rows.div_ceil(rows));
    let (x, y) = match regime {
        // Tokens vary fastest: a processor's core keeps its rows.
        Regime::Row { .. } => (token_extent, row_extent),
        _ => (row_extent, token_extent),
    };
    Dispatch {
        key: regime.key(format, act_format),
        bindings: buffers.bindings(),
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [x, y, Extent::Fixed(1)],
        cost: regime.cost(format, params.groups, regime.token_step()),
    }
}
