//! What a model will take on a device, counted before anything is loaded, so that what cannot fit
//! is refused with the arithmetic.

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::model::workspace::{self, WorkspaceSizes};
use crate::model::{ComputeDtype, KvCacheDtype, NumericsClass, Pages, Taps, loader, pooling, rope};
use crate::runner::input_batch::InputBatch;
use crate::runner::model_runner::DECODE_QUERIES;
use crate::sched::{KvGroupSpec, SchedulerConfig};
use crate::weights::Checkpoint;
use std::fmt;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::kv::KvDtype;

/// Bytes by purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights in the device's layouts, norms and biases.
    pub weights: u64,
    /// Pages of keys and values.
    pub kv_cache: u64,
    /// Activations, scratch, what steps record and pool, step buffer and rotary table.
    pub workspace: u64,
    /// Tokens that the pages of one layer hold, in the layers that hold most.
    pub kv_tokens: u64,
    /// How matmuls compute.
    pub numerics: NumericsClass,
    /// What the pages hold.
    pub kv_dtype: KvDtype,
    /// Bytes of one token's keys and values in all layers.
    pub kv_token_bytes: u64,
}

/// Most scratch for attention's parts, bytes: beyond it, queries go to prefill tiles.
const MAX_PARTS_BYTES: u64 = 64 << 20;

/// Sizes of the workspace under these limits.
pub fn workspace_sizes(
    config: &ModelConfig,
    caps: &Caps,
    sched: &SchedulerConfig,
    act_format: ActFormat,
) -> WorkspaceSizes {
    let tokens = sched.max_num_batched_tokens as u32;
    let sizes = WorkspaceSizes {
        tokens,
        rows: WorkspaceSizes::head_rows(config, caps, tokens),
        seqs: u32::try_from(sched.max_num_seqs).unwrap_or(u32::MAX),
        decodes: 1,
        max_model_len: sched.max_model_len as u32,
        step_words: InputBatch::max_words(sched, KvGroupSpec::of(config).len()) as u32,
        act_format,
    };
    // Every sequence may have a few decode queries, as far as their scratch stays moderate.
    let queries = sched.max_num_seqs.saturating_mul(DECODE_QUERIES);
    let scratch = MAX_PARTS_BYTES.min(caps.max_binding_bytes) / sizes.parts_bytes(config);
    WorkspaceSizes {
        decodes: tokens
            .min(u32::try_from(queries).unwrap_or(u32::MAX))
            .min(u32::try_from(scratch).unwrap_or(u32::MAX))
            .max(1),
        ..sizes
    }
}

impl MemoryPlan {
    /// Counts a checkpoint under these limits, computed so, with keys and values of this type.
    ///
    /// # Errors
    /// Limits that mean nothing or reach beyond the model; a checkpoint without its tensors, or of a
    /// shape no kernel computes; limits under which one buffer exceeds what the device binds.
    pub fn new(
        caps: &Caps,
        checkpoint: &Checkpoint,
        sched: &SchedulerConfig,
        compute_dtype: ComputeDtype,
        kv_cache_dtype: KvCacheDtype,
    ) -> Result<Self> {
        let config = &checkpoint.config;
        sched.validate_for(config)?;
        loader::check(checkpoint)?;
        let numerics = compute_dtype.resolve(caps)?;
        let sizes = workspace_sizes(config, caps, sched, numerics.act_format());
        let table = rope::table_bytes(config, sched.max_model_len);
        bindable(caps, "the rotary table", table)?;
        let (weights, tables) = loader::device_bytes(caps, checkpoint, sched.max_model_len)?;
        let mut workspace = tables;
        let pooling = pooling::buffers(config, sched);
        for (label, bytes) in workspace::buffers(config, &sizes)
            .into_iter()
            .chain(pooling)
        {
            bindable(caps, label, bytes)?;
            workspace += bytes;
        }
        let kv_dtype = kv_cache_dtype.resolve(numerics);
        let page = Pages::page_bytes(config, kv_dtype, sched.block_size);
        let (mut kv_cache, mut most_tokens) = (0, 0);
        for group in KvGroupSpec::of(config) {
            let blocks = group.num_blocks(sched) as u64;
            let tokens = (blocks - 1) * sched.block_size as u64;
            let what = format!("one layer's keys of {tokens} tokens");
            bindable(caps, &what, page * blocks)?;
            kv_cache += 2 * page * blocks * group.layers.len() as u64;
            most_tokens = tokens.max(most_tokens);
        }
        Ok(Self {
            weights,
            kv_cache,
            workspace,
            kv_tokens: most_tokens,
            numerics,
            kv_dtype,
            kv_token_bytes: 2 * page / sched.block_size as u64 * config.num_hidden_layers as u64,
        })
    }

    /// The plan with buffers for what steps record.
    ///
    /// # Errors
    /// A layer the model does not have; a buffer that exceeds what the device binds.
    pub fn with_taps(
        mut self,
        caps: &Caps,
        config: &ModelConfig,
        sched: &SchedulerConfig,
        taps: &Taps,
    ) -> Result<Self> {
        taps.check(config)?;
        let bytes = Taps::buffer_bytes(config, sched.max_num_batched_tokens);
        for tap in taps.iter() {
            bindable(caps, &tap.to_string(), bytes)?;
            self.workspace += bytes;
        }
        Ok(self)
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.kv_cache + self.workspace
    }

    /// Holds the plan against what there is.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with the arithmetic.
    pub fn check(&self, available: u64) -> Result<()> {
        if self.total() <= available {
            return Ok(());
        }
        Err(Error::DoesNotFit(format!(
            "the model does not fit: {self}, but only {} are available; use a smaller model, a \
             shorter context or fewer sequences",
            mib(available)
        )))
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {} + keys and values of {} tokens {} ({}, {:.1} KiB a token) + workspace {} = {}",
            mib(self.weights),
            self.kv_tokens,
            mib(self.kv_cache),
            self.kv_dtype.name(),
            self.kv_token_bytes as f64 / 1024.0,
            mib(self.workspace),
            mib(self.total())
        )
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn bindable(caps: &Caps, what: &str, bytes: u64) -> Result<()> {
    let limit = caps.max_binding_bytes.min(caps.max_buffer_bytes);
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::DoesNotFit(format!(
        "{what} would take {}, but one buffer of this device binds {} at most; use a shorter \
         context, fewer sequences or fewer tokens a step",
        mib(bytes),
        mib(limit)
    )))
}
