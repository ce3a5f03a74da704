//! `y = x Wᵀ` by cooperative matrices (Vulkan's `VK_KHR_cooperative_matrix`; tensor cores): x in
//! halves, `[tokens][group of 32]` of 64 bytes, W as [`weight`](super::weight) says, y f32
//! `[tokens][rows]`. For devices that multiply 16 × 16 × 16 halves with sums in singles
//! ([`Caps::coop`]); their class has this kernel for every number of tokens.
//!
//! The chain, the same for every element whatever the body:
//! - a weight is rounded to the nearest half, `w16 = f16(widened w)`: `fma(d, q, m)`, `d · q` or w
//!   itself as the format has it, computed in singles;
//! - a span of 512 elements (the last may be short): `a = 0`; 16 products after 16 products
//!   `a = a + Σ w16 · x16`, whose order among the 16 and whose rounding are the device's;
//! - `t = 0`; a span after a span `t = t + a`; then as [`matmul`](super::matmul) joins a bias and y.
//!
//! So on one device all bodies give the same bits; between devices, and to the reference, which adds
//! the 16 one after another, results are equal up to the rounding of such a sum.

use super::matmul::{Buffers, MatmulParams};
use super::weight::{GROUP, WeightFormat};
use super::{bindings, bodies};
use crate::caps::{Caps, Coop};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::program::{Cost, CountId, Dispatch, Extent};
use crate::tuning::Tuning;

/// Rows and columns of a matrix.
const SIDE: u32 = 16;

/// Subgroups a workgroup.
const SUBGROUPS: u32 = 4;

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "matmul_coop",
    bodies: bodies!["matmul_coop_split", "matmul_coop_tile"],
    bindings: bindings![act: Read, w: Read, ws: Read, rstd: Read, bias: Read, y: ReadWrite],
    params: MatmulParams::FIELDS,
    variants: || {
        let coop = Coop { subgroup: 32 };
        let tilings = WeightFormat::ALL
            .iter()
            .flat_map(|&format| Tiling::ALL.map(|tiling| tiling.key(coop, format)));
        tilings.collect()
    },
};

/// A body with its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiling {
    /// Up to 16 tokens: 16 rows a workgroup, its subgroups share the spans.
    Split,
    /// Up to 32: 64 rows × 32 tokens a workgroup.
    Skinny,
    /// More: 128 rows × 64 tokens.
    Wide,
}

impl Tiling {
    /// Each of them; all give the same bits on a device.
    pub const ALL: [Self; 3] = [Self::Split, Self::Skinny, Self::Wide];

    /// What suits so many tokens.
    pub fn choose(tuning: &Tuning, tokens: u32) -> Self {
        match tokens {
            n if n <= tuning.coop_split_tokens => Self::Split,
            n if n <= tuning.coop_skinny_tokens => Self::Skinny,
            _ => Self::Wide,
        }
    }

    /// Matrices a subgroup owns along the rows, and along the tokens.
    fn matrices(self) -> [u32; 2] {
        match self {
            Self::Split => [1, 1],
            Self::Skinny => [1, 2],
            // Sums of a span and of all before it: sixteen matrices of singles.
            Self::Wide => [2, 4],
        }
    }

    /// Rows a workgroup computes.
    pub fn rows(self) -> u32 {
        match self {
            Self::Split => SIDE,
            Self::Skinny | Self::Wide => SIDE * self.matrices()[0] * SUBGROUPS,
        }
    }

    /// Tokens a workgroup computes.
    pub fn tokens(self) -> u32 {
        SIDE * self.matrices()[1]
    }

    /// The variant for a device and a weight format.
    pub fn key(self, coop: Coop, format: WeightFormat) -> KernelKey {
        let key = match self {
            Self::Split => KernelKey::plain(KERNEL.name, "matmul_coop_split"),
            Self::Skinny | Self::Wide => KernelKey::plain(KERNEL.name, "matmul_coop_tile")
                .constant("TILES_ROW", self.matrices()[0])
                .constant("TILES_TOKEN", self.matrices()[1]),
        };
        let key = key
            .constant("SUBGROUPS", SUBGROUPS)
            .constant("SUBGROUP_LANES", coop.subgroup)
            .module("order", "order_span")
            .module("tiles", "coop_tiles")
            .module("epilogue", "epilogue_join");
        format.fill(key)
    }
}

/// Tokens a workgroup of this variant computes.
pub(crate) fn token_tile(key: &KernelKey) -> u32 {
    SIDE * key.get("TILES_TOKEN").unwrap_or(1)
}

/// A matmul of the step's `tokens` tokens; `None` on a device without cooperative matrices.
pub fn dispatch(
    caps: &Caps,
    format: WeightFormat,
    params: MatmulParams,
    tokens: CountId,
    buffers: Buffers,
) -> Option<Dispatch> {
    let tiling = Tiling::choose(&caps.tuning, params.tokens);
    let coop = caps.coop?;
    let params = MatmulParams {
        norm: u32::from(buffers.rstd.is_some()),
        bias: u32::from(buffers.bias.is_some()),
        ..params
    };
    let (rows, tile) = (tiling.rows(), tiling.tokens());
    let k = GROUP * params.groups;
    Some(Dispatch {
        key: tiling.key(coop, format),
        bindings: buffers.bindings(),
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(params.rows.div_ceil(rows)),
            Extent::Count {
                count: tokens,
                tile,
            },
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: f64::from(rows) * format.row_bytes(params.groups) as f64
                + f64::from(tile) * (2.0 * f64::from(k) + 4.0 * f64::from(rows)),
            flops: 2.0 * f64::from(rows) * f64::from(tile) * f64::from(k),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_them_has_no_such_matmul() {
        let tiles =
            [1, 16, 17, 32, 33, 4096].map(|n| Tiling::choose(&Tuning::default(), n).tokens());
        assert_eq!(tiles, [16, 16, 32, 32, 64, 64]);
        assert!(Caps::portable_gpu().coop.is_none());
    }
}
