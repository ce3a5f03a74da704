//! Draws a token from each row of logits, second half: the best of the candidates
//! [`super::sample`] left, the lower id on equal scores.

use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample_pick`.
    pub struct SamplePickParams {
        /// Candidates a row.
        pub candidates: u32,
        /// The step's row that comes first.
        pub first_row: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample_pick",
    bodies: bodies!["sample_pick_lane", "sample_pick_workgroup"],
    bindings: bindings![best: Read, ids: ReadWrite],
    params: SamplePickParams::FIELDS,
    variants: || vec![key(DeviceKind::Cpu), key(DeviceKind::Gpu)],
};

fn key(kind: DeviceKind) -> KernelKey {
    match kind {
        DeviceKind::Cpu => KernelKey::plain("sample_pick", "sample_pick_lane"),
        DeviceKind::Gpu => KernelKey::plain("sample_pick", "sample_pick_workgroup"),
    }
}

/// Picks the ids of `rows` rows: best `[rows][candidates][score, id]`, ids u32, written from
/// `first_row` on.
pub fn dispatch(
    caps: &Caps,
    params: SamplePickParams,
    rows: CountId,
    best: Slice,
    ids: Slice,
) -> Dispatch {
    Dispatch {
        key: key(caps.kind),
        bindings: vec![best, ids],
        params: bytemuck::bytes_of(&params).to_vec(),
        grid: [
            Extent::Count {
                count: rows,
                tile: 1,
            },
            Extent::Fixed(1),
            Extent::Fixed(1),
        ],
        cost: Cost {
            bytes: 8.0 * f64::from(params.candidates),
            flops: 2.0 * f64::from(params.candidates),
        },
    }
}
