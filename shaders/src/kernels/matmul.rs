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

pub use super::row_input::RowInput;

use super::act::ActFormat;
use super::weight::{Arithmetic, GROUP, SPAN_GROUPS, WeightFormat};
use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};
use crate::tuning::MOST_GEMV_TOKENS;

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
    variants: || variants(Regime::key),
};

/// Fewest rows a workgroup of any regime computes.
pub const LEAST_ROWS: u32 = 4;

/// A body with its constants: what a lane, a workgroup and a token's neighbours share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// Processors, any number of tokens: a lane owns four rows, or sixteen that several tokens share.
    Row {
        /// Most tokens a workgroup computes: 1, 2 or 4.
        tokens: u32,
        /// How inputs reach the lanes.
        input: RowInput,
        /// Lanes a workgroup.
        lanes: u32,
    },
    /// GPUs, up to 8 tokens: a lane owns a span of four rows.
    Gemv {
        /// Tokens a workgroup computes: 1, 2, 4 or 8.
        tokens: u32,
    },
    /// GPUs, 9 to 64 tokens: tiles of 64 rows × 16 tokens.
    Skinny,
    /// GPUs, more tokens: tiles of 64 rows × 32 tokens.
    Gemm,
}

impl Regime {
    /// The regime for `tokens` tokens on a device.
    pub fn choose(caps: &Caps, tokens: u32) -> Self {
        match caps.kind {
            DeviceKind::Cpu => {
                let (input, lanes) = match caps.subgroups {
                    Some((4, 4)) => (RowInput::Subgroup4, 8),
                    // A workgroup must be one subgroup, so its size must be known.
                    Some((min, max)) if min == max && (8..=64).contains(&min) => {
                        (RowInput::Subgroup8, min)
                    }
                    _ => (RowInput::Uniform, 8),
                };
                Self::Row {
                    tokens: tokens
                        .clamp(1, input.most_tokens().min(caps.tuning.row_tokens))
                        .next_power_of_two(),
                    input,
                    lanes,
                }
            }
            DeviceKind::Gpu if tokens <= caps.tuning.gemv_tokens => Self::Gemv {
                tokens: tokens.clamp(1, MOST_GEMV_TOKENS).next_power_of_two(),
            },
            DeviceKind::Gpu if tokens <= caps.tuning.skinny_tokens => Self::Skinny,
            DeviceKind::Gpu => Self::Gemm,
        }
    }

    /// Tokens that a device computes at a time and that take as long as one of them; 1 where the regimes
    /// follow the number of tokens closely enough.
    pub fn token_tile(caps: &Caps) -> u32 {
        match caps.kind {
            DeviceKind::Cpu => Self::choose(caps, u32::MAX).token_step(),
            DeviceKind::Gpu => 1,
        }
    }

    /// Every regime a device can run; all give the same bits on it.
    pub fn all(caps: &Caps) -> Vec<Self> {
        let mut inputs = vec![(RowInput::Uniform, 8)];
        if let Self::Row { input, lanes, .. } = Self::choose(
            &Caps {
                kind: DeviceKind::Cpu,
                ..caps.clone()
            },
            1,
        ) && input != RowInput::Uniform
            // Lanes of a subgroup are known to be consecutive on processors only.
            && caps.kind == DeviceKind::Cpu
        {
            inputs.push((input, lanes));
        }
        let rows = inputs.into_iter().flat_map(|(input, lanes)| {
            let tokens = [1, 2, 4]
                .into_iter()
                .take_while(move |&n| n <= input.most_tokens());
            tokens.map(move |tokens| Self::Row {
                tokens,
                input,
                lanes,
            })
        });
        rows.chain([1, 2, 4, 8].map(|tokens| Self::Gemv { tokens }))
            .chain([Self::Skinny, Self::Gemm])
            .collect()
    }

    /// Most tokens a workgroup computes.
    pub fn tokens(self) -> u32 {
        match self {
            Self::Row { tokens, .. } | Self::Gemv { tokens } => tokens,
            Self::Skinny => 16,
            Self::Gemm => 32,
        }
    }

    /// Tokens that the grid counts: a processor's workgroup computes those of its tokens that there are,
    /// two at a time, for beside a few decodes a step has only a few of a prompt.
    fn token_step(self) -> u32 {
        match self {
            Self::Row { tokens, .. } => tokens.min(2),
            _ => self.tokens(),
        }
    }

    /// Rows a workgroup computes.
    pub fn rows(self, groups: u32) -> u32 {
        match self {
            Self::Row { tokens, lanes, .. } => row_rows(tokens) * lanes,
            Self::Gemv { .. } => {
                let spans = groups.div_ceil(SPAN_GROUPS).clamp(1, 64);
                LEAST_ROWS * (64 / spans)
            }
            Self::Skinny | Self::Gemm => 64,
        }
    }

    /// How it takes the codes: a processor has fused multiply-adds for several tokens at a time, and
    /// whole numbers that are small enough are exact either way.
    fn arithmetic(self, act_format: ActFormat) -> Arithmetic {
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
                input,
                lanes,
            } => KernelKey::plain(kernel, "matmul_row")
                .constant("LANES", lanes)
                .constant("ROWS", row_rows(tokens))
                .constant("TOKENS", tokens)
                .constant("UNROLL", unroll(format, arithmetic))
                .module("input", input.module(act_format, arithmetic)),
            Self::Gemv { tokens } => KernelKey::plain(kernel, "matmul_gemv")
                .constant("TOKENS", tokens)
                .module("input", uniform),
            Self::Skinny | Self::Gemm => KernelKey::plain(kernel, "matmul_tile")
                .constant("LANES_ROW", 16)
                .constant("LANES_TOKEN", self.tokens() / 4)
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
fn unroll(format: WeightFormat, arithmetic: Arithmetic) -> u32 {
    u32::from(format.is_packed(arithmetic))
}

/// Most rows a lane of `matmul_row`: more share the inputs (with 16 a quarter faster than with 8, on two
/// cores of lavapipe), fewer make more workgroups of one token.
fn row_rows(tokens: u32) -> u32 {
    if tokens == 1 { 4 } else { 16 }
}

/// The dimension of a variant's grid that counts tiles of tokens, or of pairs.
pub(crate) fn tile_dimension(key: &KernelKey) -> usize {
    usize::from(key.body != "matmul_row")
}

/// The variants of a kernel that has these bodies, of any device.
pub(super) fn variants(key: fn(Regime, WeightFormat, ActFormat) -> KernelKey) -> Vec<KernelKey> {
    let mut regimes = Vec::new();
    for subgroups in [None, Some((4, 4)), Some((8, 8))] {
        let caps = Caps {
            subgroups,
            ..Caps::reference()
        };
        for regime in Regime::all(&caps) {
            if !regimes.contains(&regime) {
                regimes.push(regime);
            }
        }
    }
    let mut keys = Vec::new();
    for regime in regimes {
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
    let regime = Regime::choose(caps, params.tokens);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regime_by_device_and_tokens() {
        let gpu = Caps::portable_gpu();
        let tokens = [1, 2, 3, 8, 9, 64, 65].map(|n| Regime::choose(&gpu, n).tokens());
        assert_eq!(tokens, [1, 2, 4, 8, 16, 16, 32]);
        let mut cpu = Caps::reference();
        assert_eq!(Regime::choose(&cpu, 1).tokens(), 1);
        cpu.subgroups = Some((8, 8));
        assert_eq!(Regime::choose(&cpu, 34).tokens(), 4);
        cpu.subgroups = Some((4, 16));
        assert!(matches!(
            Regime::choose(&cpu, 34),
            Regime::Row {
                input: RowInput::Uniform,
                ..
            }
        ));
    }

    #[test]
    fn short_rows_share_a_workgroup() {
        let rows = [1, 18, 48, 256, 1000].map(|g| Regime::Gemv { tokens: 1 }.rows(g));
        assert_eq!(rows, [256, 48, 20, 4, 4]);
    }
}
