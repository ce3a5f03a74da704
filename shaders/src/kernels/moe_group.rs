//! A step's pairs of a token and a chosen expert, by expert: the order in which
//! [`moe_matmul`](super::moe_matmul) takes them where several share an expert's weights, and tiles of at
//! most `tile` pairs of one expert each. Pairs of an expert stay in the order of their tokens; every
//! element of the output is decided by the route alone, so nothing depends on who writes first.
//!
//! Layout, u32: tiles `[expert, first, pairs]`, then from `order` on the pairs by expert; a pair is
//! `token · chosen + place`, and `first` counts from `order`. The tiles of expert e begin at
//! `⌊pairs of experts before it / tile⌋ + e`, for which nobody has to know how many tiles those take, and
//! there is room for each: `⌊(b + n) / t⌋ + 1 − ⌊b / t⌋ ≥ ⌈n / t⌉`. What is left over has 0 pairs.

use super::matmul::Regime;
use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `moe_group`.
    pub struct MoeGroupParams {
        /// Experts.
        pub experts: u32,
        /// Experts a token goes to.
        pub chosen: u32,
        /// Tokens the buffers have room for.
        pub tokens: u32,
        /// Most pairs a tile.
        pub tile: u32,
        /// Where the order begins, in words.
        pub order: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "moe_group",
    bodies: bodies!["moe_group_lane", "moe_group_workgroup"],
    bindings: bindings![step: Read, route: Read, pairs: ReadWrite],
    params: MoeGroupParams::FIELDS,
    variants: || [DeviceKind::Cpu, DeviceKind::Gpu].map(key).into(),
};

fn key(kind: DeviceKind) -> KernelKey {
    let (body, lanes) = match kind {
        DeviceKind::Cpu => ("moe_group_lane", 8),
        DeviceKind::Gpu => ("moe_group_workgroup", 128),
    };
    KernelKey::plain(KERNEL.name, body)
        .module("step", "step")
        .constant("LANES", lanes)
}

/// The pairs of a step, of which a program has room for some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// The step's tokens.
    pub tokens: CountId,
    /// Most of them.
    pub room: u32,
    /// Experts a token goes to.
    pub chosen: u32,
    /// Experts there are.
    pub experts: u32,
}

impl Pairs {
    /// The body and the tiles of the products, which are pairs themselves where a tile has one.
    ///
    /// What decides between the bodies of a matrix product is how many inputs share a row of weights. Of
    /// a mixture those are the pairs of an expert, so their number stands for the tokens, and
    /// [`Tuning`](crate::tuning::Tuning)'s borders hold here too. Experts differ in it, and what counts is what a
    /// pair meets: it shares its expert with each of the other tokens with the same likelihood, if each expert is
    /// as likely as the next, so there are `1 + (tokens − 1) · chosen / experts` of them in the mean over pairs;
    /// over experts, of which many have few, the mean is less, and tiles of so many would cut those with most
    /// pairs into several, each of which reads the weights again. Where some experts are likelier, tiles gain
    /// more than that says.
    pub fn regime(self, caps: &Caps) -> Regime {
        let (experts, chosen) = (f64::from(self.experts), f64::from(self.chosen));
        let others = f64::from(self.room.saturating_sub(1));
        let met = 1.0 + others * chosen / experts;
        let regime = Regime::choose(caps, met.round() as u32);
        // No such device has so much memory; but what it would do then is right.
        match self.tiles(regime.tokens()) > caps.max_workgroups {
            true => Regime::choose(caps, 1),
            false => regime,
        }
    }

    /// Most tiles of so many pairs.
    fn tiles(self, tile: u32) -> u32 {
        let full = self.room.saturating_mul(self.chosen).div_ceil(tile);
        full.saturating_add(self.experts)
    }

    /// Tiles of a step.
    pub(super) fn extent(self, tile: u32) -> Extent {
        Extent::Tiles {
            count: self.tokens,
            times: self.chosen,
            tile,
            more: self.experts,
        }
    }

    /// Where the order begins behind tiles of so many pairs, in words.
    pub(super) fn order(self, tile: u32) -> u32 {
        self.tiles(tile).saturating_mul(3)
    }

    /// Bytes of the tiles, whatever they hold, and the order.
    pub fn bytes(self) -> u64 {
        let pairs = u64::from(self.room) * u64::from(self.chosen);
        let tiles = pairs.div_ceil(2) + u64::from(self.experts);
        4 * (3 * tiles + pairs)
    }
}

/// Windows of `moe_group`.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The step.
    pub step: Slice,
    /// Experts and weights of [`moe_route`](super::moe_route).
    pub route: Slice,
    /// Tiles and order.
    pub pairs: Slice,
}

/// Groups the step's pairs for products of this regime.
pub fn dispatch(caps: &Caps, pairs: Pairs, regime: Regime, buffers: Buffers) -> Dispatch {
    let tile = regime.tokens();
    let params = MoeGroupParams {
        experts: pairs.experts,
        chosen: pairs.chosen,
        tokens: pairs.room,
        tile,
        order: pairs.order(tile),
    };
    let key = key(caps.kind);
    let experts = match caps.kind {
        DeviceKind::Cpu => key.value("LANES"),
        DeviceKind::Gpu => 1,
    };
    // Every lane, or workgroup, reads all pairs twice.
    let reads = 2.0 * f64::from(pairs.room) * f64::from(pairs.chosen) * f64::from(experts);
    Dispatch {
        key,
        bindings: vec![buffers.step, buffers.route, buffers.pairs],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Fixed(pairs.experts.div_ceil(experts)),
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 8.0 * reads,
            flops: 2.0 * reads,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_by_the_pairs_of_an_expert() {
        let pairs = |room, chosen, experts| Pairs {
            tokens: CountId(0),
            room,
            chosen,
            experts,
        };
        let gpu = Caps::portable_gpu();
        let tiles = [1, 16, 32, 64, 128, 256, 1024, 2048]
            .map(|room| pairs(room, 8, 128).regime(&gpu).tokens());
        assert_eq!(tiles, [1, 2, 4, 8, 16, 16, 32, 32]);
        assert_eq!(pairs(2, 2, 8).regime(&gpu).tokens(), 1);
        // More tiles than a grid has places: pair by pair, whose tokens are another dimension.
        let mut cpu = Caps::reference();
        assert_eq!(pairs(512, 8, 64).regime(&cpu).tokens(), 2);
        cpu.max_workgroups = 2111;
        assert_eq!(pairs(512, 8, 64).regime(&cpu).tokens(), 1);
        cpu.max_workgroups = 2112;
        assert_eq!(pairs(512, 8, 64).regime(&cpu).tokens(), 2);
    }
}
