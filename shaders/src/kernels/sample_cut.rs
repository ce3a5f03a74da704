//! Concludes from what [`super::sample_scan`] counted: the largest logit, the next digit of the k-th
//! largest, or the next digit of the value at which the probability mass reaches p. Clears the bins.
//!
//! A digit is found from the highest bin down: the bin with which the sum reaches the rank, or the
//! target, p32 · Z / 2³² (rounded down, at least 1) of the mass Z that reached the cut, p32 being p in
//! fixed point. All of it is integers.

use super::sample_scan::{self, DIGITS, SampleScanParams, Stage};
use super::{bindings, bodies};
use crate::caps::{Caps, DeviceKind};
use crate::kernel::{Kernel, KernelKey, Params};
use crate::params;
use crate::program::{Cost, CountId, Dispatch, Extent, Slice};

params! {
    /// Parameters of `sample_cut`.
    pub struct SampleCutParams {
        /// The step's row that comes first.
        pub first_row: u32,
        /// Digit of the key, 0 the most significant.
        pub digit: u32,
    }
}

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "sample_cut",
    bodies: bodies!["sample_cut_lane", "sample_cut_workgroup"],
    bindings: bindings![step: Read, cut: ReadWrite],
    params: SampleCutParams::FIELDS,
    variants: || {
        [DeviceKind::Cpu, DeviceKind::Gpu]
            .into_iter()
            .flat_map(|kind| Stage::ALL.map(|stage| key(kind, stage)))
            .collect()
    },
};

fn key(kind: DeviceKind, stage: Stage) -> KernelKey {
    let body = match kind {
        DeviceKind::Cpu => "sample_cut_lane",
        DeviceKind::Gpu => "sample_cut_workgroup",
    };
    let key = KernelKey::plain("sample_cut", body)
        .module("step", "step")
        .module("cut", "cut")
        .module("order_key", "order_key")
        .module("cut_walk", "cut_walk");
    stage.key(key)
}

/// Concludes for `rows` rows: cut u32 `[rows]` of [`super::sample_scan::ROW_WORDS`].
pub fn dispatch(
    caps: &Caps,
    stage: Stage,
    params: SampleCutParams,
    rows: CountId,
    step: Slice,
    cut: Slice,
) -> Dispatch {
    Dispatch {
        key: key(caps.kind, stage),
        bindings: vec![step, cut],
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
            bytes: 4096.0,
            flops: 2048.0,
        },
    }
}

/// Which counts of a step say how many rows take part in each [`Stage`]: all of a group's, or none.
pub type StageRows = [CountId; 3];

/// Every pass, with what follows from it: the cuts of the rows from `first_row` on.
pub fn passes(
    caps: &Caps,
    vocab: u32,
    first_row: u32,
    rows: StageRows,
    logits: Slice,
    step: Slice,
    cut: Slice,
) -> Vec<Dispatch> {
    let mut dispatches = Vec::new();
    for (stage, rows) in Stage::ALL.into_iter().zip(rows) {
        let digits = if stage == Stage::Max { 1 } else { DIGITS };
        for digit in 0..digits {
            let scan = SampleScanParams {
                vocab,
                first_row,
                digit,
            };
            let params = SampleCutParams { first_row, digit };
            dispatches.push(sample_scan::dispatch(stage, scan, rows, logits, step, cut));
            dispatches.push(dispatch(caps, stage, params, rows, step, cut));
        }
    }
    dispatches
}
