//! Pages of preempted requests in host memory: read out of the device before a step may overwrite
//! them, written back before a step reads them. Knows where a layer's pages lie, no request's tokens.

use crate::error::Result;
use crate::model::Pages;
use crate::sched::{BlockTransfer, MovedBlock};
use crate::types::RequestId;
use std::collections::BTreeMap;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::program::Slice;

/// A request's pages by group and index; of each the keys and values of the group's layers in order.
type Held = BTreeMap<(usize, usize), Vec<Vec<u8>>>;

/// Pages by request.
#[derive(Debug, Default)]
pub(super) struct HostPages {
    held: BTreeMap<RequestId, Held>,
}

impl HostPages {
    /// Drops what is held of requests that are over.
    pub(super) fn forget(&mut self, ids: &[RequestId]) {
        for id in ids {
            self.held.remove(id);
        }
    }

    /// Reads pages out. What is held of a request already stands: it was read for a step that then
    /// failed, and its pages may have been written since.
    pub(super) async fn read(
        &mut self,
        executor: &mut impl Executor,
        pages: &Pages,
        transfers: &[BlockTransfer],
    ) -> Result<()> {
        for transfer in transfers {
            if self.held.contains_key(&transfer.request_id) {
                continue;
            }
            // A read is a submit on a device, so pages that follow each other are one.
            let runs = || transfer.blocks.chunk_by(follows);
            let mut reads = Vec::new();
            for run in runs() {
                for window in windows(pages, &run[0]) {
                    let end = window.offset + window.bytes * run.len() as u64;
                    reads.push(executor.read(window.buffer, window.offset..end));
                }
            }
            let mut reads = reads.into_iter();
            let mut held = Held::new();
            for run in runs() {
                for window in windows(pages, &run[0]) {
                    let read = reads.next().expect("one for each window of a run");
                    let bytes = read.await?;
                    for (moved, page) in run.iter().zip(bytes.chunks(window.bytes as usize)) {
                        let place = (moved.group, moved.index);
                        held.entry(place).or_default().push(page.to_vec());
                    }
                }
            }
            self.held.insert(transfer.request_id, held);
        }
        Ok(())
    }

    /// Writes pages back; they stay held until [`forget`](Self::forget).
    pub(super) fn write(
        &self,
        executor: &mut impl Executor,
        pages: &Pages,
        transfers: &[BlockTransfer],
    ) -> Result<()> {
        for transfer in transfers {
            let held = self.held.get(&transfer.request_id);
            for moved in &transfer.blocks {
                let bytes = held.and_then(|held| held.get(&(moved.group, moved.index)));
                let bytes = bytes.ok_or_else(|| {
                    ExecutorError::Invalid(format!(
                        "block {} of {} is not in host memory",
                        moved.index, transfer.request_id
                    ))
                })?;
                for (window, bytes) in windows(pages, moved).zip(bytes) {
                    executor.write(window.buffer, window.offset, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a block lies behind another on the device.
fn follows(before: &MovedBlock, moved: &MovedBlock) -> bool {
    before.group == moved.group && before.block + 1 == moved.block
}

/// A block's page of keys and of values in each layer of its group.
fn windows(pages: &Pages, moved: &MovedBlock) -> impl Iterator<Item = Slice> {
    let MovedBlock { group, block, .. } = *moved;
    let of_group = pages
        .layers
        .iter()
        .filter(move |layer| layer.group == group);
    of_group.flat_map(move |layer| layer.page(block))
}
