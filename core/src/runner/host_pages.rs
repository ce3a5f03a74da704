//! Pages of preempted requests in host memory: read out of the device before a step may overwrite
//! them, written back before a step reads them. Knows where a layer's pages lie, no request's tokens.

use super::launched_step::ReadBack;
use crate::error::Result;
use crate::model::Pages;
use crate::sched::{BlockTransfer, MovedBlock};
use std::collections::BTreeMap;
use std::fmt;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::program::Slice;

/// Bytes read out of the device.
enum Bytes {
    OnTheWay(ReadBack),
    /// Empty where reading failed.
    Here(Vec<u8>),
}

/// Blocks that lie behind each other on the device.
struct Run {
    blocks: Vec<MovedBlock>,
    /// Keys and values of each of the group's layers, in order: bytes a block, and those of all.
    windows: Vec<(usize, Bytes)>,
}

/// Pages by the number of their transfer.
#[derive(Default)]
pub(super) struct HostPages {
    held: BTreeMap<u64, Vec<Run>>,
}

impl fmt::Debug for HostPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.held.keys()).finish()
    }
}

impl HostPages {
    /// Drops what these transfers brought.
    pub(super) fn forget(&mut self, transfers: &[u64]) {
        for number in transfers {
            self.held.remove(number);
        }
    }

    /// Reads pages out, as they are after everything launched so far, and waits for none of them.
    /// What a transfer brought already stands: it was read for a step that then failed, and its pages
    /// may have been written since.
    pub(super) fn read(
        &mut self,
        executor: &mut impl Executor,
        pages: &Pages,
        transfers: &[BlockTransfer],
    ) {
        for transfer in transfers {
            if self.held.contains_key(&transfer.number) {
                continue;
            }
            // A read is a submit on a device, so pages that follow each other are one.
            let runs = transfer.blocks.chunk_by(follows).map(|run| {
                let windows = windows(pages, &run[0]).map(|window| {
                    let end = window.offset + window.bytes * run.len() as u64;
                    let read = executor.read(window.buffer, window.offset..end);
                    (window.bytes as usize, Bytes::OnTheWay(Box::pin(read)))
                });
                Run {
                    blocks: run.to_vec(),
                    windows: windows.collect(),
                }
            });
            let runs = runs.collect();
            self.held.insert(transfer.number, runs);
        }
    }

    /// Writes pages back, once they are here; they stay held until [`forget`](Self::forget).
    pub(super) async fn write(
        &mut self,
        executor: &mut impl Executor,
        pages: &Pages,
        transfers: &[BlockTransfer],
    ) -> Result<()> {
        for transfer in transfers {
            let runs = self.held.entry(transfer.number).or_default();
            for bytes in runs.iter_mut().flat_map(|run| &mut run.windows) {
                bytes.1.arrive().await?;
            }
            for moved in &transfer.blocks {
                let mut places = runs.iter().filter_map(|run| Some((run, run.place(moved)?)));
                let held = places.next().and_then(|(run, place)| run.pages(place));
                let held = held.ok_or_else(|| {
                    ExecutorError::Invalid(format!(
                        "block {} of {} is not in host memory",
                        moved.index, transfer.request_id
                    ))
                })?;
                for (window, bytes) in windows(pages, moved).zip(held) {
                    executor.write(window.buffer, window.offset, bytes)?;
                }
            }
        }
        Ok(())
    }
}

impl Bytes {
    async fn arrive(&mut self) -> Result<()> {
        if let Self::OnTheWay(read) = self {
            // A read-back is not waited for twice, whatever comes of it.
            let read = read.await;
            let (bytes, result) = match read {
                Ok(bytes) => (bytes, Ok(())),
                Err(error) => (Vec::new(), Err(error.into())),
            };
            *self = Self::Here(bytes);
            return result;
        }
        Ok(())
    }
}

impl Run {
    /// Which of its blocks this is.
    fn place(&self, moved: &MovedBlock) -> Option<usize> {
        let of = |block: &MovedBlock| (block.group, block.index);
        self.blocks.iter().position(|block| of(block) == of(moved))
    }

    /// One block's bytes in each window.
    fn pages(&self, place: usize) -> Option<Vec<&[u8]>> {
        let windows = self.windows.iter();
        windows
            .map(|(bytes, all)| match all {
                Bytes::Here(all) => all.get(place * bytes..(place + 1) * bytes),
                Bytes::OnTheWay(_) => None,
            })
            .collect()
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
