//! Runs steps of one model on one executor: lays the step out and launches its programs and what is
//! read back of them.

use super::ExecuteModel;
use super::filters::Filters;
use super::host_pages::HostPages;
use super::input_batch::{DecodeSplit, InputBatch, LogitsRow, RowPurpose};
use super::launched_step::{LaunchedStep, ReadBack};
use super::memory_plan::{MemoryPlan, workspace_sizes};
use super::options::RunnerOptions;
use super::pool_rows::{PoolRows, StepPools};
use super::program_cache::ProgramCache;
use super::recorder::Recorder;
use super::state_slots::StateSlots;
use crate::error::Result;
use crate::model::pooling::PoolBuffers;
use crate::model::workspace::MAX_EDITS;
use crate::model::{
    COUNT_ROWS, Decoder, EDITS, FILTER_ROWS, HeadPart, MASKS, MASS_ROWS, Pages, ROWS, Workspace,
    loader,
};
use crate::sample::logit_edits;
use crate::sched::{KvGroupSpec, ModelRunnerOutput, SchedulerConfig, SchedulerOutput};
use crate::weights::Checkpoint;
use std::ops::Range;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::sample_edit::{BAN, EDIT_WORDS};
use twoclock_shaders::kernels::sample_mask::record_words;
use twoclock_shaders::program::StepArgs;

/// Sequences with up to so many queries in a step go to the split decode kernel.
pub const DECODE_QUERIES: usize = 4;

/// Groups of rows whose logits are on their way to the host at a time: a prompt scored in one step has
/// logits of hundreds of MiB. Where it has more groups, its launch waits for the first of them.
const MAX_LOGITS_READS: usize = 2;

/// A model on an executor.
#[derive(Debug)]
pub struct ModelRunner<E> {
    pub(super) executor: E,
    model: Decoder,
    workspace: Workspace,
    pages: Pages,
    groups: Vec<KvGroupSpec>,
    programs: ProgramCache,
    pub(super) recorder: Recorder,
    pool: PoolBuffers,
    pool_rows: PoolRows,
    split: DecodeSplit,
    plan: MemoryPlan,
    fingerprint: String,
    host: HostPages,
    slots: StateSlots,
}

impl<E: Executor> ModelRunner<E> {
    /// Loads a checkpoint onto an executor, for steps under these limits. `progress` is told the
    /// share that is done, 0 to 1.
    ///
    /// # Errors
    /// Limits that cannot be, a model that does not fit (before anything is loaded), a file that
    /// cannot be read, or the device's.
    pub fn load(
        mut executor: E,
        checkpoint: &Checkpoint,
        sched: &SchedulerConfig,
        options: RunnerOptions,
        progress: impl FnMut(f32),
    ) -> Result<Self> {
        sched.validate()?;
        let (caps, config) = (executor.caps(), &checkpoint.config);
        let (compute, kv) = (options.compute_dtype, options.kv_cache_dtype);
        let plan = MemoryPlan::new(caps, checkpoint, sched, compute, kv)?;
        let plan = plan.with_taps(caps, config, sched, &options.taps)?;
        if let Some(available) = options.memory {
            plan.check(available)?;
        }
        let decode_queries = match (options.decode_queries, executor.caps().kind) {
            (Some(asked), _) => asked.min(DECODE_QUERIES),
            // Two queries fill a tile's lanes as well as the keys of one, twice as fast.
            (None, DeviceKind::Cpu) => 1,
            (None, DeviceKind::Gpu) => DECODE_QUERIES,
        };
        let sizes = workspace_sizes(config, caps, sched, plan.numerics.act_format());
        let (numerics, positions) = (plan.numerics, sched.max_model_len);
        let model = loader::load(&mut executor, checkpoint, numerics, positions, progress)?;
        let workspace = Workspace::create(&mut executor, &model.config, sizes)?;
        let pages = Pages::create(&mut executor, &model.config, plan.kv_dtype, sched)?;
        let recorder = Recorder::new(&mut executor, &model.config, &options.taps, sizes.tokens)?;
        let pool = PoolBuffers::create(&mut executor, &model.config, sched)?;
        Ok(Self {
            executor,
            model,
            workspace,
            pages,
            groups: KvGroupSpec::of(&checkpoint.config),
            programs: ProgramCache::default(),
            recorder,
            pool,
            pool_rows: PoolRows::default(),
            split: DecodeSplit {
                sequence: decode_queries,
                step: sizes.decodes as usize,
            },
            fingerprint: fingerprint(checkpoint, &plan),
            plan,
            host: HostPages::default(),
            slots: StateSlots::new(sizes.seqs),
        })
    }

    /// The executor.
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The executor, to run something else on it between two steps.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// The model.
    pub fn model(&self) -> &Decoder {
        &self.model
    }

    /// What it takes on the device.
    pub fn memory_plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Launches the head of one group of rows; gives the group's logits where they are wanted, as
    /// they are before `edits` and `masks`.
    fn head(
        &mut self,
        batch: &InputBatch,
        rows: Range<usize>,
        filters: &[Filters],
        edits: &[u32],
        masks: &[u32],
        read: bool,
    ) -> Result<Option<ReadBack>> {
        let mut counts = batch.counts.clone();
        counts[ROWS.0] = rows.len() as u32;
        let if_any = |asks: fn(&Filters) -> bool| match filters.iter().any(asks) {
            true => rows.len() as u32,
            false => 0,
        };
        counts[FILTER_ROWS.0] = if_any(|row| row.any);
        counts[COUNT_ROWS.0] = if_any(|row| row.top_k != 0);
        counts[MASS_ROWS.0] = if_any(|row| row.top_p != 0);
        let changed = !edits.is_empty() || !masks.is_empty();
        let part = match changed {
            true => HeadPart::Logits,
            false => HeadPart::Whole,
        };
        self.launch_head(&rows, part, &counts)?;
        let bytes = 4 * (rows.len() * self.model.config.vocab_size) as u64;
        let logits = read.then(|| {
            let read = self.executor.read(self.workspace.logits.buffer, 0..bytes);
            Box::pin(read) as ReadBack
        });
        for chunk in edits.chunks(EDIT_WORDS * MAX_EDITS) {
            let number = (chunk.len() / EDIT_WORDS) as u32;
            let list = [&[number, 0, 0, 0], chunk].concat();
            let list = bytemuck::cast_slice(&list);
            self.executor.write(self.workspace.edits.buffer, 0, list)?;
            counts[EDITS.0] = number;
            let program = self.programs.edit(&self.workspace);
            self.executor.launch(program, &args(counts.clone()))?;
        }
        if !masks.is_empty() {
            let list = bytemuck::cast_slice(masks);
            self.executor.write(self.workspace.masks.buffer, 0, list)?;
            let record = record_words(self.model.config.vocab_size as u32);
            counts[MASKS.0] = masks.len() as u32 / record;
            let program = self.programs.mask(&self.model, &self.workspace);
            self.executor.launch(program, &args(counts.clone()))?;
        }
        if changed {
            self.launch_head(&rows, HeadPart::Draw, &counts)?;
        }
        Ok(logits)
    }

    /// Sums final hidden states of the step's shares; gives the sums that end in it.
    fn launch_pool(&mut self, pools: &StepPools, tokens: u32) -> Result<Option<ReadBack>> {
        if pools.records.is_empty() {
            return Ok(None);
        }
        let (caps, ws, pool) = (self.executor.caps(), &self.workspace, &self.pool);
        let program = self.programs.pool(&self.model, caps, ws, pool, tokens);
        let records = bytemuck::cast_slice(&pools.records).to_vec();
        let step = StepArgs {
            upload: Some((pool.pools.buffer, records)),
            counts: vec![tokens, pools.records.len() as u32],
        };
        self.executor.launch(program, &step)?;
        if pools.ends.is_empty() {
            return Ok(None);
        }
        let bytes = 4 * (pools.ends.len() * self.model.config.hidden_size) as u64;
        let sums = self.executor.read(self.pool.sums.buffer, 0..bytes);
        Ok(Some(Box::pin(sums)))
    }

    fn launch_head(&mut self, rows: &Range<usize>, part: HeadPart, counts: &[u32]) -> Result<()> {
        let program = self.programs.head(
            &self.model,
            self.executor.caps(),
            &self.workspace,
            rows.start as u32,
            rows.len() as u32,
            part,
        );
        self.executor.launch(program, &args(counts.to_vec()))?;
        Ok(())
    }

    /// The edits of the drawn tokens' logits in a group of rows, as the kernel takes them.
    fn edits(&self, rows: &[LogitsRow], output: &SchedulerOutput) -> Vec<u32> {
        let vocab = self.model.config.vocab_size;
        let mut words = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let sampling = &output.scheduled[row.sequence].sampling;
            if let (RowPurpose::Sample, Some(history)) = (row.purpose, &sampling.history) {
                let edits = logit_edits(&sampling.params, history).into_iter();
                // Ids are checked where a request is taken in; shaders are not.
                for edit in edits.filter(|edit| (edit.token_id as usize) < vocab) {
                    let index = (number * vocab) as u32 + edit.token_id;
                    words.extend([
                        if edit.banned { index | BAN } else { index },
                        edit.bias.to_bits(),
                        edit.repetition.to_bits(),
                        edit.minus.to_bits(),
                    ]);
                }
            }
        }
        words
    }

    /// The masks of the drawn tokens in a group of rows, as the kernel takes them.
    fn masks(&self, rows: &[LogitsRow], output: &SchedulerOutput) -> Vec<u32> {
        let record = record_words(self.model.config.vocab_size as u32) as usize;
        let mut words = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let sampling = &output.scheduled[row.sequence].sampling;
            if let (RowPurpose::Sample, Some(mask)) = (row.purpose, &sampling.mask) {
                let end = words.len() + record;
                words.push(number as u32);
                words.extend_from_slice(mask.words());
                words.resize(end, 0);
            }
        }
        words
    }
}

/// What besides tokens decides keys and values: shape, arithmetic and weights of the model, as far as
/// their names, types and sizes tell, the class, and the cache's type.
fn fingerprint(checkpoint: &Checkpoint, plan: &MemoryPlan) -> String {
    let metadata = &checkpoint.metadata;
    format!(
        "{:?} {} {:?} {:?} {} {}",
        metadata.name,
        metadata.file_bytes,
        metadata.dtypes,
        checkpoint.config,
        plan.numerics.name(),
        plan.kv_dtype.name()
    )
}

fn args(counts: Vec<u32>) -> StepArgs {
    StepArgs {
        upload: None,
        counts,
    }
}

impl<E: Executor> ExecuteModel for ModelRunner<E> {
    type Launched = LaunchedStep;

    async fn launch_step(&mut self, output: &SchedulerOutput) -> Result<LaunchedStep> {
        self.slots.release(&output.finished_ids);
        self.slots.release(&output.preempted_ids);
        let running = output.scheduled.iter().map(|s| s.request_id);
        let slots: Option<Vec<u32>> = running.map(|id| self.slots.slot(id)).collect();
        let slots = slots.ok_or_else(|| {
            let most = self.workspace.sizes.seqs;
            ExecutorError::Invalid(format!("more than {most} sequences run"))
        })?;
        let batch = InputBatch::new(output, &slots, &self.groups, self.split);
        if batch.num_words > self.workspace.sizes.step_words as usize {
            return Err(ExecutorError::Invalid(format!(
                "a step of {} words exceeds the {} it was planned for",
                batch.num_words, self.workspace.sizes.step_words
            ))
            .into());
        }
        self.host.forget(&output.swap_drops);
        let (executor, pages) = (&mut self.executor, &self.pages);
        self.host.read(executor, pages, &output.swap_outs);
        self.host.write(executor, pages, &output.swap_ins).await?;
        let tokens = output.total_num_scheduled_tokens() as u32;
        let body = self.programs.body(
            &self.model,
            self.executor.caps(),
            &self.workspace,
            &self.pages,
            self.recorder.recorded(),
            tokens,
        );
        let upload = bytemuck::cast_slice(&batch.words).to_vec();
        self.executor.launch(
            body,
            &StepArgs {
                upload: Some((self.workspace.step.buffer, upload)),
                ..args(batch.counts.clone())
            },
        )?;

        let vocab = self.model.config.vocab_size;
        let mut launched = LaunchedStep::new(output, batch.rows.clone(), vocab);
        let pools = self.pool_rows.plan(output, &self.pool);
        let sums = self.launch_pool(&pools, tokens)?;
        launched.expect_sums(pools, sums);
        let group = self.workspace.sizes.rows as usize;
        for first in (0..batch.rows.len()).step_by(group) {
            let rows = first..batch.rows.len().min(first + group);
            let read = launched.wants_logits(rows.clone());
            let filters: Vec<Filters> = launched.rows()[rows.clone()]
                .iter()
                .filter(|row| row.purpose == RowPurpose::Sample)
                .map(|row| Filters::of(&output.scheduled[row.sequence].sampling.params))
                .collect();
            let edits = self.edits(&batch.rows[rows.clone()], output);
            let masks = self.masks(&batch.rows[rows.clone()], output);
            let logits = self.head(&batch, rows.clone(), &filters, &edits, &masks, read)?;
            if let Some(logits) = logits {
                launched.expect_logits(rows, logits);
            }
            launched.take_logits(MAX_LOGITS_READS).await?;
        }
        let draws = launched.draws();
        let num_ids = if draws { batch.rows.len() } else { 1 };
        let bytes = 4 * num_ids as u64;
        let ids = Box::pin(self.executor.read(self.workspace.ids.buffer, 0..bytes));
        match draws {
            true => launched.expect_ids(ids),
            // Else a prompt's chunks would all be on their way at once, past recall, and none be timed.
            false => launched.expect_end(ids),
        }
        Ok(launched)
    }

    async fn finish_step(&mut self, launched: LaunchedStep) -> Result<ModelRunnerOutput> {
        launched.finish().await
    }

    fn release(&mut self) {
        self.executor.release();
        self.host = HostPages::default();
    }

    fn kv_block_bytes(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.groups.len()];
        for layer in &self.pages.layers {
            bytes[layer.group] += 2 * layer.page_bytes;
        }
        bytes
    }

    fn kv_fingerprint(&self) -> String {
        self.fingerprint.clone()
    }
}
