//! Runs steps of one model on one executor: lays the step out and launches its programs and what is
//! read back of them.

use super::ExecuteModel;
use super::filters::Filters;
use super::host_pages::HostPages;
use super::input_batch::{DecodeSplit, InputBatch, RowPurpose};
use super::launched_step::{LaunchedStep, ReadBack};
use super::logit_changes::LogitChanges;
use super::memory_plan::{MemoryPlan, workspace_sizes};
use super::options::RunnerOptions;
use super::pool_rows::{PoolRows, StepPools};
use super::program_cache::ProgramCache;
use super::recorder::Recorder;
use super::state_slots::StateSlots;
use crate::error::Result;
use crate::model::pooling::PoolBuffers;
use crate::model::{
    COUNT_ROWS, Decoder, EDITS, FILTER_ROWS, HeadPart, MASKS, MASS_ROWS, Pages, ROWS, Workspace,
    loader,
};
use crate::sched::{KvGroupSpec, ModelRunnerOutput, SchedulerConfig, SchedulerOutput};
use crate::weights::Checkpoint;
use std::ops::Range;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::executor::{Executor, ExecutorError};
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

    /// Launches the head of one group of rows, whose changes the device has. Gives the group's logits
    /// where they are wanted, as they are before the changes.
    fn head(
        &mut self,
        batch: &InputBatch,
        changes: &LogitChanges,
        filters: &[Filters],
        read: bool,
    ) -> Result<Option<ReadBack>> {
        let rows = changes.rows.clone();
        let mut counts = batch.counts.clone();
        counts[ROWS.0] = rows.len() as u32;
        let if_any = |asks: fn(&Filters) -> bool| match filters.iter().any(asks) {
            true => rows.len() as u32,
            false => 0,
        };
        counts[FILTER_ROWS.0] = if_any(|row| row.any);
        counts[COUNT_ROWS.0] = if_any(|row| row.top_k != 0);
        counts[MASS_ROWS.0] = if_any(|row| row.top_p != 0);
        let part = match changes.is_empty() {
            false => HeadPart::Logits,
            true => HeadPart::Whole,
        };
        self.launch_head(&rows, part, &counts)?;
        let logits = read.then(|| {
            let bytes = 4 * (rows.len() * self.model.config.vocab_size) as u64;
            let logits = self.workspace.logits.buffer;
            // The last ones join the submit of the ids.
            match rows.end == batch.rows.len() {
                true => Box::pin(self.executor.read_with_next(logits, 0..bytes)) as ReadBack,
                false => Box::pin(self.executor.read(logits, 0..bytes)),
            }
        });
        if changes.is_empty() {
            return Ok(logits);
        }
        for (list, edits) in changes.lists().enumerate() {
            if list > 0 {
                changes.write_list(list, &mut self.executor, &self.workspace)?;
            }
            counts[EDITS.0] = edits;
            let program = self.programs.edit(&self.workspace);
            self.executor.launch(program, &args(counts.clone()))?;
        }
        if changes.num_masks() > 0 {
            counts[MASKS.0] = changes.num_masks();
            let program = self.programs.mask(&self.model, &self.workspace);
            self.executor.launch(program, &args(counts.clone()))?;
        }
        self.launch_head(&rows, HeadPart::Draw, &counts)?;
        Ok(logits)
    }

    /// Hands the device what is pooled in the step.
    fn write_pool(&mut self, pools: &StepPools) -> Result<()> {
        if !pools.records.is_empty() {
            let records = bytemuck::cast_slice(&pools.records);
            self.executor.write(self.pool.pools.buffer, 0, records)?;
        }
        Ok(())
    }

    /// Sums final hidden states of the step's shares; gives the sums that end in it.
    fn launch_pool(&mut self, pools: &StepPools, tokens: u32) -> Result<Option<ReadBack>> {
        if pools.records.is_empty() {
            return Ok(None);
        }
        let (caps, ws, pool) = (self.executor.caps(), &self.workspace, &self.pool);
        let program = self.programs.pool(&self.model, caps, ws, pool, tokens);
        let counts = vec![tokens, pools.records.len() as u32];
        self.executor.launch(program, &args(counts))?;
        if pools.ends.is_empty() {
            return Ok(None);
        }
        let bytes = 4 * (pools.ends.len() * self.model.config.hidden_size) as u64;
        let sums = self.pool.sums.buffer;
        let sums = self.executor.read_with_next(sums, 0..bytes);
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
        // What is written after the body would make two submits of the step, and a driver may hold the
        // second one back until the first is done.
        let pools = self.pool_rows.plan(output, &self.pool);
        self.write_pool(&pools)?;
        let (all, vocab) = (&batch.rows, self.model.config.vocab_size);
        let group = self.workspace.sizes.rows as usize;
        let changes = (0..all.len())
            .step_by(group)
            .map(|first| LogitChanges::of(first..all.len().min(first + group), all, output, vocab));
        let mut changes = changes.peekable();
        if let Some(first) = changes.peek() {
            first.write(&mut self.executor, &self.workspace)?;
        }
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

        let mut launched = LaunchedStep::new(output, batch.rows.clone(), vocab);
        let sums = self.launch_pool(&pools, tokens)?;
        launched.expect_sums(pools, sums);
        for changes in changes {
            let rows = changes.rows.clone();
            if rows.start > 0 {
                changes.write(&mut self.executor, &self.workspace)?;
            }
            let read = launched.wants_logits(rows.clone());
            let filters: Vec<Filters> = launched.rows()[rows.clone()]
                .iter()
                .filter(|row| row.purpose == RowPurpose::Sample)
                .map(|row| Filters::of(&output.scheduled[row.sequence].sampling.params))
                .collect();
            let logits = self.head(&batch, &changes, &filters, read)?;
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
