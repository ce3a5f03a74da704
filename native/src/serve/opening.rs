//! The models as an operator named them: found and opened, each with what loads it. Blocks, for minutes where files
//! are fetched. Knows no client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use twoclock_core::engine::HandleOptions;
use twoclock_core::text::{ChatTemplate, Tokenizer};
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

/// What models are to be opened, and how they are to be loaded. It has all of it itself, so that nobody need wait for
/// its end.
pub struct Opening {
    models: Vec<String>,
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
    /// A model that is not there, is none or fits no limits; two of one name.
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
        for model in &opening.models {
            let (given, reference) = args::named(model);
            let name = match given {
                Some(name) => name.to_owned(),
                None => short_name(reference)?,
            };
            if !names.insert(name.clone()) {
                bail!(
                    "two models are called {name:?}: give one another name, as -m other={reference}"
                );
            }
            let checkpoint = known.find(reference)?.open()?;
            let context_length = opening.options.checked(&checkpoint.config)?.max_model_len;
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
                context_length,
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
        let template = match checkpoint.text.chat_template {
            Some(_) => Some(ChatTemplate::from_assets(
                &checkpoint.text,
                Some(host_time::strftime()),
            )?),
            None => None,
        };
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
            tell_device(&engine, context_length);
            Ok(engine)
        };
        let thread = EngineThread::spawn(handle_options, make, |engine| {
            engine.core().runner().executor().save_pipelines();
        })?;
        let loaded = Loaded::new(thread, template, generation, pooling, context_length);
        Ok(loaded.under(rates).heeding_priority(self.heeds_priority))
    }
}

/// Says what a model runs on, and warns where that is not what serving is for.
fn tell_device(engine: &HostEngine, context_length: usize) {
    let core = engine.core();
    let (device, limits) = (core.runner().executor(), core.scheduler().config());
    let kv_cache_tokens = core.scheduler().kv_cache().num_usable_blocks() * limits.block_size;
    let max_num_seqs = limits.max_num_seqs;
    tracing::info!(%device, context_length, kv_cache_tokens, max_num_seqs, "the engine");
    if device.caps().kind == DeviceKind::Cpu {
        tracing::warn!(
            "it computes on the processor, by a software driver or the reference kernels: for trying and testing, \
             not for speed; `twoclock devices` lists what there is"
        );
    }
}
