//! The models as an operator named them: found and opened, each with what loads it. Blocks, for minutes where files
//! are fetched. Knows no client.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use twoclock_core::config::ModelConfig;
use twoclock_core::engine::HandleOptions;
use twoclock_core::text::{ChatTemplate, TextError, Tokenizer};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::executor::Executor as _;

use super::args::{self, SchedulingPolicy, ServeArgs};
use super::loaded::Loaded;
use super::offered::Offered;
use super::roof::Roof;
use crate::engine::{self, EngineOptions, HostEngine};
use crate::engine_thread::EngineThread;
use crate::host_time;
use crate::logs::{self, LogFormat};
use crate::models::{Models, short_name};
use crate::report::Reporter;
use crate::store::Store;
use crate::text_input::read_text;

/// What models are to be opened, and how they are to be loaded. It has all of it itself, so that nobody need wait for
/// its end.
pub struct Opening {
    models: Vec<String>,
    chat_template: Option<PathBuf>,
    options: EngineOptions,
    store: Store,
    offline: bool,
    verbose: bool,
    log_format: LogFormat,
    max_waiting: usize,
    heeds_priority: bool,
    roof: Roof,
}

impl Opening {
    /// What was asked for.
    pub fn new(args: &ServeArgs, options: &EngineOptions, known: &Models<'_>) -> Self {
        Self {
            models: args.model.clone(),
            chat_template: args.chat_template.clone(),
            options: EngineOptions {
                warm_up: !args.no_warmup,
                ..options.clone()
            },
            store: known.store.clone(),
            offline: known.offline,
            verbose: known.report.is_verbose(),
            log_format: args.telling.log_format,
            max_waiting: args.limits.max_queue,
            heeds_priority: args.limits.scheduling_policy == SchedulingPolicy::Priority,
            roof: Roof::new(options.device, known.store.clone()),
        }
    }

    /// Opens their files: what is not there is said at once.
    ///
    /// # Errors
    /// A model that is not there, is none or fits no limits; two of one name; a chat template that cannot be read or is
    /// none.
    pub fn open(self) -> anyhow::Result<Vec<Offered>> {
        let opening = Arc::new(self);
        let report = opening.report();
        let known = Models {
            store: &opening.store,
            offline: opening.offline,
            report: &report,
        };
        let mut names = BTreeSet::new();
        let mut offered = Vec::new();
        let is_alone = opening.models.len() == 1;
        if !is_alone && opening.chat_template.is_some() {
            bail!("--chat-template is for one model: serve it alone");
        }
        let chat_template = opening.chat_template.as_deref().map(read_text);
        let chat_template = chat_template.transpose().context("--chat-template")?;
        for model in &opening.models {
            let (given, reference) = args::named(model);
            let mut its_names: Vec<_> = given.into_iter().map(str::to_owned).collect();
            if its_names.is_empty() {
                its_names.push(short_name(reference)?);
            }
            for name in &its_names {
                if !names.insert(name.clone()) {
                    bail!(
                        "{name:?} is named twice: give each model names of its own, as -m other={reference}"
                    );
                }
            }
            let aliases = its_names.split_off(1);
            let name = its_names.remove(0);
            let mut checkpoint = known.find(reference)?.open()?;
            if let (Some(file), Some(source)) = (&opening.chat_template, &chat_template) {
                checkpoint.text.chat_template = Some(source.clone());
                let of_file = || format!("--chat-template {}", file.display());
                template_of(&checkpoint).with_context(of_file)?;
            }
            let context_length = opening.options.checked(&checkpoint.config)?.max_model_len;
            let has_chat_template = checkpoint.text.chat_template.is_some();
            let opening = Arc::clone(&opening);
            // A lone model is loaded before anybody is heard; later the log is all that tells of loads.
            let has_bars = AtomicBool::new(is_alone);
            let load = move || {
                let report = match has_bars.swap(false, Ordering::Relaxed) {
                    true => opening.report(),
                    false => opening.report().without_bars(),
                };
                opening.load(&checkpoint, context_length, report)
            };
            offered.push(Offered {
                name,
                aliases,
                context_length,
                has_chat_template,
                load: Arc::new(load),
            });
        }
        Ok(offered)
    }

    fn report(&self) -> Reporter {
        logs::reporter(self.verbose, Some(self.log_format))
    }

    fn load(
        &self,
        checkpoint: &Checkpoint,
        context_length: usize,
        report: Reporter,
    ) -> anyhow::Result<Loaded> {
        let has_template = checkpoint.text.chat_template.is_some();
        let template = has_template.then(|| template_of(checkpoint)).transpose()?;
        let rates = self.roof.rates();
        let handle_options = HandleOptions {
            max_waiting: self.max_waiting,
            ..HandleOptions::default()
        };
        let (generation, pooling) = (checkpoint.generation, checkpoint.pooling.clone());
        let (options, store) = (self.options.clone(), self.store.clone());
        let checkpoint = checkpoint.clone();
        let make = move || {
            let tokenizer = Tokenizer::from_assets(&checkpoint.text)?;
            let engine = engine::load(&checkpoint, tokenizer, &options, &store, &report)?;
            let is_usual = options.max_model_len.is_none();
            tell(&engine, context_length, &checkpoint.config, is_usual);
            Ok(engine)
        };
        let thread = EngineThread::spawn(handle_options, make, |engine| {
            engine.core().runner().executor().save_pipelines();
        })?;
        let loaded = Loaded::new(thread, template, generation, pooling, context_length);
        Ok(loaded.under(rates).heeding_priority(self.heeds_priority))
    }
}

/// The chat template that a model has.
fn template_of(checkpoint: &Checkpoint) -> Result<ChatTemplate, TextError> {
    ChatTemplate::from_assets(&checkpoint.text, Some(host_time::strftime()))
}

/// Says what a model runs on and what it takes there, and warns where that is not what serving is for.
fn tell(engine: &HostEngine, context_length: usize, model: &ModelConfig, is_usual: bool) {
    let core = engine.core();
    let (runner, limits) = (core.runner(), core.scheduler().config());
    let (device, plan) = (runner.executor(), runner.memory_plan());
    let (kv_cache_tokens, max_num_seqs) = (plan.kv_tokens, limits.max_num_seqs);
    tracing::info!(%device, context_length, kv_cache_tokens, max_num_seqs, "the engine");
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    tracing::info!(
        weights_mib = mib(plan.weights),
        kv_cache_mib = mib(plan.kv_cache),
        kv_cache_dtype = plan.kv_dtype.name(),
        workspace_mib = mib(plan.workspace),
        total_mib = mib(plan.total()),
        "its memory"
    );
    let model_allows = model.max_position_embeddings;
    if is_usual && context_length < model_allows {
        tracing::info!(
            context_length,
            model_allows,
            "the context is shorter than the model allows: --max-model-len has it longer"
        );
    }
    if device.caps().kind == DeviceKind::Cpu {
        tracing::warn!(
            "it computes on the processor, by a software driver or the reference kernels: for trying and testing, \
             not for speed; `twoclock devices` lists what there is"
        );
    }
}
