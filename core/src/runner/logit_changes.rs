//! What happens to the logits of a group of rows between the head and the draw, in the words that
//! kernels take: edits of single ones, and masks. Knows rows and where the words go, no model.

use super::input_batch::{LogitsRow, RowPurpose};
use crate::model::Workspace;
use crate::model::workspace::MAX_EDITS;
use crate::sample::logit_edits;
use crate::sched::SchedulerOutput;
use std::ops::Range;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::sample_edit::{BAN, EDIT_WORDS};
use twoclock_shaders::kernels::sample_mask::record_words;

/// What happens to a group's logits.
#[derive(Debug)]
pub(super) struct LogitChanges {
    /// The group, among the step's rows.
    pub(super) rows: Range<usize>,
    /// Lists that are launched one after the other, each with its number of edits before it.
    edits: Vec<Vec<u32>>,
    masks: Vec<u32>,
    num_masks: u32,
}

impl LogitChanges {
    /// Of these rows of the step's.
    pub(super) fn of(
        rows: Range<usize>,
        all: &[LogitsRow],
        output: &SchedulerOutput,
        vocab: usize,
    ) -> Self {
        let record = record_words(vocab as u32) as usize;
        let (mut edits, mut masks, mut num_masks) = (Vec::new(), Vec::new(), 0);
        for (number, row) in all[rows.clone()].iter().enumerate() {
            let sampling = &output.scheduled[row.sequence].sampling;
            if row.purpose != RowPurpose::Sample {
                continue;
            }
            if let Some(history) = &sampling.history {
                let edited = logit_edits(&sampling.params, history).into_iter();
                // Ids are checked where a request is taken in; shaders are not.
                for edit in edited.filter(|edit| (edit.token_id as usize) < vocab) {
                    let index = (number * vocab) as u32 + edit.token_id;
                    edits.extend([
                        if edit.banned { index | BAN } else { index },
                        edit.bias.to_bits(),
                        edit.repetition.to_bits(),
                        edit.minus.to_bits(),
                    ]);
                }
            }
            if let Some(mask) = &sampling.mask {
                num_masks += 1;
                let end = masks.len() + record;
                masks.push(number as u32);
                masks.extend_from_slice(mask.words());
                masks.resize(end, 0);
            }
        }
        let list = |edits: &[u32]| [&[(edits.len() / EDIT_WORDS) as u32, 0, 0, 0], edits].concat();
        Self {
            rows,
            edits: edits.chunks(EDIT_WORDS * MAX_EDITS).map(list).collect(),
            masks,
            num_masks,
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.masks.is_empty()
    }

    /// How many edits each list has.
    pub(super) fn lists(&self) -> impl Iterator<Item = u32> {
        self.edits.iter().map(|list| list[0])
    }

    /// How many rows are masked.
    pub(super) fn num_masks(&self) -> u32 {
        self.num_masks
    }

    /// Hands the device what begins: the first list, and the masks.
    pub(super) fn write(&self, executor: &mut impl Executor, ws: &Workspace) -> Written {
        if !self.edits.is_empty() {
            self.write_list(0, executor, ws)?;
        }
        if !self.masks.is_empty() {
            executor.write(ws.masks.buffer, 0, bytemuck::cast_slice(&self.masks))?;
        }
        Ok(())
    }

    /// Hands the device a list.
    pub(super) fn write_list(
        &self,
        list: usize,
        executor: &mut impl Executor,
        ws: &Workspace,
    ) -> Written {
        executor.write(ws.edits.buffer, 0, bytemuck::cast_slice(&self.edits[list]))
    }
}

type Written = Result<(), ExecutorError>;
