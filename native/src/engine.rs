//! An engine for one model on one device of this machine: opened, measured against memory, loaded
//! with a bar, and its compiled pipelines kept when it goes.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use pollster::block_on;
use twoclock_core::config::ModelConfig;
use twoclock_core::engine::{EngineCore, LlmEngine, RetryPolicy, RunnerFactory};
use twoclock_core::error::Error;
use twoclock_core::runner::{ComputeDtype, KvCacheDtype, MemoryPlan, ModelRunner, RunnerOptions};
use twoclock_core::sched::{
    CostModel, Hardware, ModelShape, PreemptionMode, SchedulerConfig, ServiceLevel,
};
use twoclock_core::text::Tokenizer;
use twoclock_core::weights::{Checkpoint, Quantization};
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::matmul::Regime;

use crate::clock::HostClock;
use crate::fitting::fitted;
use crate::host_executor::{DeviceChoice, HostExecutor, Pipelines};
use crate::kv_cache_tokens::KvCacheTokens;
use crate::memory;
use crate::report::Reporter;
use crate::store::Store;

/// Context where neither the user nor the model asks for less.
const DEFAULT_CONTEXT: usize = 4096;

/// How an engine is made.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// On what.
    pub device: DeviceChoice,
    /// How matmuls compute.
    pub compute_dtype: ComputeDtype,
    /// Type of cached keys and values.
    pub kv_cache_dtype: KvCacheDtype,
    /// Sequences that are computed together; `None` is one.
    pub max_num_seqs: Option<usize>,
    /// Longest sequence; `None` is the model's own, at most 4096.
    pub max_model_len: Option<usize>,
    /// Memory the model may take, MiB.
    pub memory_mib: Option<u64>,
    /// What unquantized weights are turned into.
    pub quantize: Option<Quantization>,
    /// Steps launched ahead; `None` is the scheduler's default.
    pub run_ahead: Option<usize>,
    /// Times to keep: they bound the prompt tokens of a step. `None` lets prompts take all the room.
    pub slo: Option<ServiceLevel>,
    /// Whether kernels are run before anybody asks, so that nobody waits for their being compiled.
    pub warm_up: bool,
    /// How many share it; `None` is one user, one request after the other.
    pub serving: Option<ServingLimits>,
}

impl EngineOptions {
    /// Limits of an engine for this model.
    fn limits(&self, model: &ModelConfig) -> SchedulerConfig {
        let mut config = limits(model, self.max_model_len);
        config.max_num_seqs = self.max_num_seqs.unwrap_or(config.max_num_seqs);
        config.run_ahead = self.run_ahead.unwrap_or(config.run_ahead);
        match &self.serving {
            Some(serving) => serving.widen(config),
            None => config,
        }
    }

    /// The limits, held against each other and against the model.
    ///
    /// # Errors
    /// Nothing could run under them, they reach beyond the model, the cache holds no sequence as long as is asked
    /// for, or is to fill a memory that is not given.
    pub fn checked(&self, model: &ModelConfig) -> anyhow::Result<SchedulerConfig> {
        let config = self.limits(model);
        config.validate_for(model)?;
        if let Some(asked) = self
            .max_model_len
            .filter(|asked| config.max_model_len < *asked)
        {
            bail!(
                "--max-model-len is {asked}, but --kv-cache-tokens lets the cache hold {}: lower the one or raise the \
                 other",
                config.max_model_len
            );
        }
        if self.fills_memory() && self.memory_mib.is_none() {
            bail!(
                "--kv-cache-tokens max takes what --memory leaves, which is not given: say how much of the device's \
                 memory the model may take (--memory MIB)"
            );
        }
        Ok(config)
    }

    /// What many who share it were said to keep; `None` is one user.
    fn kv_cache_tokens(&self) -> Option<KvCacheTokens> {
        Some(self.serving.as_ref()?.kv_cache_tokens)
    }

    fn fills_memory(&self) -> bool {
        self.kv_cache_tokens() == Some(KvCacheTokens::Max)
    }

    /// The same with room for no more than one sequence, of so many tokens.
    fn for_one(mut self, max_model_len: usize) -> Self {
        self.max_model_len = Some(max_model_len);
        if let Some(serving) = &mut self.serving {
            serving.kv_cache_tokens = KvCacheTokens::Max;
        }
        self
    }
}

/// How requests share an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingLimits {
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Most tokens in one step.
    pub max_num_batched_tokens: usize,
    /// Tokens the KV cache holds.
    pub kv_cache_tokens: KvCacheTokens,
    /// Whether requests share the blocks of equal beginnings.
    pub enable_prefix_caching: bool,
    /// What becomes of preempted requests.
    pub preemption_mode: PreemptionMode,
    /// Host memory for pages of preempted requests, bytes.
    pub swap_space_bytes: u64,
}

impl ServingLimits {
    /// The limits of one user, widened for many.
    fn widen(&self, one: SchedulerConfig) -> SchedulerConfig {
        let usual = self.max_num_seqs.clamp(1, 4);
        let tokens = match self.kv_cache_tokens {
            KvCacheTokens::Tokens(tokens) => tokens,
            KvCacheTokens::Usual => one.max_model_len.saturating_mul(usual),
            // At least; more once it is known what the rest takes.
            KvCacheTokens::Max => one.max_model_len,
        };
        let num_blocks = tokens.div_ceil(one.block_size);
        // A sequence that does not fit the cache could never finish.
        let held = num_blocks.saturating_mul(one.block_size).max(1);
        SchedulerConfig {
            max_model_len: one.max_model_len.min(held),
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            num_blocks: num_blocks.saturating_add(1),
            enable_prefix_caching: self.enable_prefix_caching,
            preemption_mode: self.preemption_mode,
            swap_space_bytes: self.swap_space_bytes,
            ..one
        }
    }
}

/// Limits for one user, and sequences of at most so many tokens.
pub fn limits(model: &ModelConfig, max_model_len: Option<usize>) -> SchedulerConfig {
    let max_model_len =
        max_model_len.unwrap_or_else(|| model.max_position_embeddings.min(DEFAULT_CONTEXT));
    let defaults = SchedulerConfig::default();
    SchedulerConfig {
        max_model_len,
        num_blocks: 1 + max_model_len.div_ceil(defaults.block_size),
        // One at a time, so a window takes the room of one.
        max_num_seqs: 1,
        ..defaults
    }
}

/// The engine of a program on this machine.
pub type HostEngine = LlmEngine<ModelRunner<HostExecutor>, HostClock>;

/// Opens a lost device again and loads the model anew.
struct HostFactory {
    checkpoint: Checkpoint,
    device: DeviceChoice,
    /// Another adapter would give other bits.
    adapter_key: Option<String>,
    caches: PathBuf,
    config: SchedulerConfig,
    options: RunnerOptions,
}

impl RunnerFactory for HostFactory {
    type Runner = ModelRunner<HostExecutor>;

    async fn create(&mut self) -> Result<Self::Runner, Error> {
        tracing::warn!("the device was lost: it is opened and the model loaded again");
        let executor = HostExecutor::open(self.device, &self.caches, Pipelines::Kept)?;
        if executor.adapter_key() != self.adapter_key.as_deref() {
            let other = format!("the lost device is not back, and {executor} is another");
            return Err(ExecutorError::NoDevice(other).into());
        }
        ModelRunner::load(
            executor,
            &self.checkpoint,
            &self.config,
            self.options.clone(),
            |_| (),
        )
    }

    async fn wait(&mut self, span: Duration) {
        // The thread has nothing else to do: it drives this engine.
        thread::sleep(span);
    }
}

/// Loads a checkpoint, whose tokenizer this is. When the device is lost, the engine goes on by itself
/// on the same one, as soon as it is back.
///
/// # Errors
/// No such device, a model that does not fit, files that cannot be read, weights that should be
/// quantized and already are.
pub fn load(
    checkpoint: &Checkpoint,
    tokenizer: Tokenizer,
    options: &EngineOptions,
    store: &Store,
    report: &Reporter,
) -> anyhow::Result<HostEngine> {
    let caches = store.caches();
    let executor = HostExecutor::open(options.device, &caches, Pipelines::Kept)?;
    report.detail(&format!("on {executor}"));
    let mut checkpoint = checkpoint.clone();
    if let Some(quantization) = options.quantize {
        checkpoint.quantize(quantization)?;
    }
    let model = checkpoint.config.clone();
    let config = options.checked(&model)?;
    let wished = limits(&model, None).max_model_len;
    if options.max_model_len.is_none() && config.max_model_len < wished {
        tracing::warn!(
            "sequences have at most {} tokens instead of {wished}, as many as the cache holds: more --kv-cache-tokens \
             let them be longer",
            config.max_model_len
        );
    }
    let plan = |limits: &SchedulerConfig| {
        let (compute, kv) = (options.compute_dtype, options.kv_cache_dtype);
        MemoryPlan::new(executor.caps(), &checkpoint, limits, compute, kv)
    };
    let memory = memory::budget(executor.caps(), options.memory_mib);
    let (config, plan) = fitted(
        &config,
        options.kv_cache_tokens(),
        memory,
        |max_model_len| options.clone().for_one(max_model_len).limits(&model),
        plan,
    )?;
    report.detail(&format!("{plan}"));
    let head_dim = model.head_dim as u32;
    let kv_bytes = plan.kv_dtype.row_bytes(head_dim);
    let shape = ModelShape::new(
        &model,
        plan.weights,
        f64::from(kv_bytes) / f64::from(head_dim),
    );
    let tile = Regime::token_tile(executor.caps()) as usize;
    let cost = CostModel::new(shape, Hardware::unmeasured(plan.total())).with_token_tile(tile);
    let (slo, warm_up) = (options.slo, options.warm_up);
    let has_adapter = executor.adapter_key().is_some();
    let factory = HostFactory {
        device: options.device,
        adapter_key: executor.adapter_key().map(str::to_owned),
        caches,
        config: config.clone(),
        options: RunnerOptions {
            memory,
            compute_dtype: options.compute_dtype,
            kv_cache_dtype: options.kv_cache_dtype,
            ..RunnerOptions::default()
        },
        checkpoint,
    };
    let bar: ProgressBar = report.bar("loading", Some(plan.weights));
    let progress = |share: f32| bar.set_position((f64::from(share) * plan.weights as f64) as u64);
    let HostFactory {
        checkpoint,
        options,
        ..
    } = &factory;
    let runner = ModelRunner::load(executor, checkpoint, &config, options.clone(), progress);
    bar.finish_and_clear();
    let mut core = EngineCore::new(runner?, HostClock::default(), &model, config)
        .context("the engine cannot be set up")?;
    // The reference kernels are compiled with the program.
    if warm_up && has_adapter {
        let (began, mut stages) = (Instant::now(), report.stages(1));
        stages.begin("warming up");
        block_on(core.warm_up()).context("the first steps on the device failed")?;
        let ms = began.elapsed().as_millis() as u64;
        tracing::info!(ms, "warmed up");
    }
    core.set_cost_model(cost, slo);
    Ok(LlmEngine::new(core, tokenizer).with_factory(factory, RetryPolicy::default()))
}
