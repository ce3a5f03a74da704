//! Routing of a mixture of experts (Shazeer et al. 2017, arXiv:1701.06538): from router logits f32
//! `[tokens][experts]` to each token's `chosen` experts, best first, and their weights:
//! u32 `[tokens][chosen][expert, weight as f32 bits]`.
//!
//! The chain: experts by falling logit, equal ones by ascending id; `m` the first's logit;
//! `e = exp(logit − m)`; a weight is e / Σ, with Σ over the chosen in their order (`norm`), or over
//! all experts by id.

use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `moe_route`.
    pub struct MoeRouteParams {
        /// Experts.
        pub experts: u32,
        /// Experts a token goes to, at most `experts`.
        pub chosen: u32,
        /// Tokens the buffers have room for.
        pub tokens: u32,
        /// Not 0: weights of the chosen sum to 1.
        pub norm: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "moe_route",
    bodies: bodies!["moe_route"],
    bindings: bindings![logits: Read, route: ReadWrite],
    params: MoeRouteParams::FIELDS,
    variants: || [DeviceKind::Cpu, DeviceKind::Gpu].map(key).into(),
};

fn key(kind: DeviceKind) -> KernelKey {
    let tokens = match kind {
        DeviceKind::Cpu => 8,
        DeviceKind::Gpu => 32,
    };
    KernelKey::plain("moe_route", "moe_route").constant("TOKENS", tokens)
}

/// Routes the step's tokens.
pub fn dispatch(
    caps: &Caps,
    params: MoeRouteParams,
    tokens: CountId,
    logits: Slice,
    route: Slice,
) -> Dispatch {
    let key = key(caps.kind);
    let tile = key.value("TOKENS");
    let reads = f64::from(tile * params.experts * (params.chosen + 1));
    Dispatch {
        key,
        bindings: vec![logits, route],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: tokens,
                tile,
            },
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 4.0 * reads,
            flops: 3.0 * reads,
        },
    }
}
