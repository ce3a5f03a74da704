//! The `serve` command: models over HTTP, in OpenAI's protocol. Owns the order of things at the beginning and
//! the end; what a body says is `openai`'s.

pub mod access;
pub mod access_line;
pub mod allowed_hosts;
pub mod answers;
pub mod api_error;
pub mod app;
pub mod args;
pub mod auth;
pub mod backoff;
pub mod body_room;
pub mod chunks;
pub mod client_address;
pub mod connection;
pub mod connections;
pub mod cors;
pub mod embeddings;
pub mod gate;
pub mod generate;
pub mod guarded_body;
pub mod http_metrics;
pub mod intake;
pub mod lease;
pub mod lingering;
pub mod listener;
pub mod loaded;
pub mod messages;
pub mod metrics;
pub mod models;
pub mod named_model;
pub mod offered;
pub mod one_answer;
pub mod openapi;
pub mod page;
pub mod paths;
pub mod reading;
pub mod request_body;
pub mod request_id;
pub mod request_record;
pub mod request_span;
pub mod rereading;
pub mod responses;
pub mod roof;
pub mod router;
pub mod seats;
pub mod server;
pub mod shutdown;
pub mod signals;
pub mod slot;
pub mod status;
pub mod steps;
pub mod stream;
pub mod telemetry;
pub mod tokens;
pub mod unread;
pub mod unsent;
pub mod until;
pub mod whole;
pub mod write_limit;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::net::TcpListener;
use tokio::runtime;
use twoclock_core::engine::HandleOptions;
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::weights::Checkpoint;
use twoclock_shaders::caps::DeviceKind;
use twoclock_shaders::executor::Executor as _;

use crate::engine::{self, EngineOptions, HostEngine};
use crate::engine_thread::EngineThread;
use crate::host_time;
use crate::logs::{self, LogFormat};
use crate::models::{Models as Known, short_name};
use crate::open_files;
use crate::report::Reporter;
use crate::store::Store;
use allowed_hosts::AllowedHosts;
use app::{App, Settings};
use args::{LimitArgs, SchedulingPolicy, ServeArgs};
use auth::ApiKeys;
use connections::Connections;
use listener::Bounds;
use loaded::Loaded;
use models::{ModelLimits, Models};
use offered::Offered;
use reading::Reading;
use rereading::Rereading;
use roof::Roof;
use server::Server;
use shutdown::{Phase, Shutdown};
use signals::{Signals, Wish};
use telemetry::Telemetry;
use until::until;

/// Threads that read the server's own files and the host's: keys, and what is measured.
const HOST_THREADS: usize = 2;

/// Serves models until a signal ends it.
///
/// # Errors
/// A model that is not there, or is alone and cannot be loaded; an address that cannot be listened at; keys
/// that cannot be read; a name or an origin that is none; no room for open files.
pub fn run(args: &ServeArgs, options: &EngineOptions, known: &Known<'_>) -> anyhow::Result<()> {
    let LimitArgs {
        max_queue,
        max_body,
        max_connections,
        header_timeout,
        body_timeout,
        write_timeout,
        request_timeout,
        ping_interval,
        drain_timeout,
        idle_unload,
        max_loaded_models,
        scheduling_policy: _,
    } = args.limits.clone();
    let max_connections = max_connections as usize;
    open_files::raise(max_connections)?;
    let keys = ApiKeys::load(args.place.api_key_file.as_deref())?;
    if !keys.is_open() {
        tracing::info!(keys = keys.num(), "requests need a key");
    }
    let cors_origins = cors::origins(&args.place.cors_origin)?;
    let settings = Settings {
        max_body: usize::try_from(max_body << 20).unwrap_or(usize::MAX),
        body_timeout,
        request_timeout,
        ping_interval,
    };
    let offered = offered(args, options, known, max_queue)?;
    let cores = app::num_cores();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 8))
        // Those that read requests, those that load or unload a model, each of which has a seat, the last to send spans,
        // and those that read files of the host.
        .max_blocking_threads(
            Reading::max_threads(cores) + max_loaded_models as usize + 1 + HOST_THREADS,
        )
        .thread_name("serve")
        .enable_io()
        .enable_time()
        .build()
        .context("the host gives no threads for the server")?;
    let model_limits = ModelLimits {
        max_loaded: max_loaded_models as usize,
        ..ModelLimits::default()
    };
    let place = (args.place.host.as_str(), args.place.port);
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(place).await;
        let (host, port) = place;
        let listener = listener.map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => {
                    ": another program has that port; give another with --port, or --port 0 for any that is free"
                }
                _ => "",
            };
            anyhow!("{host}:{port} cannot be listened at: {error}{hint}")
        })?;
        let mut signals = Signals::listen().context("the host lets no signal be listened to")?;
        let at = listener.local_addr()?;
        let bounds = Bounds {
            header_timeout,
            write_timeout,
        };
        let connections = Connections::new(open_files::connections(max_connections)?);
        let names = &args.place.allowed_host;
        let telemetry = args.telling.otlp_endpoint.as_deref().map(Telemetry::start);
        let app = App {
            allowed_hosts: AllowedHosts::new(at.ip(), host, keys.is_open(), names)?,
            cors_origins,
            telemetry: telemetry.transpose()?,
            connections,
            ..App::new(Models::new(offered, model_limits), settings, keys)
        };
        let server = Server::new(listener, app, bounds, drain_timeout, idle_unload);
        let app = Arc::clone(server.app());
        let keys = app.keys.clone();
        let rereading = Rereading::start(move || keys.reread());
        tokio::spawn(async move { heed(&mut signals, &app.shutdown, &rereading).await });
        // What is wrong with a lone model is said before anybody is heard.
        if !load_alone(server.app()).await? {
            tracing::info!("told to end while the model was loading");
            return Ok(());
        }
        if server.app().keys.is_open() && !at.ip().is_loopback() {
            tracing::warn!(
                "no key is asked for, and everybody who reaches {at} is served: give --api-key-file or \
                 TWOCLOCK_API_KEY, or leave --host at 127.0.0.1"
            );
        }
        let listening = format!("listening at http://{at}");
        match args.telling.log_format {
            // For scripts too, whatever is logged.
            LogFormat::Text => logs::say(&listening),
            LogFormat::Json => tracing::info!(target: logs::ALWAYS, "{listening}"),
        }
        server.run().await;
        Ok(())
    });
    // What still reads a request is not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Loads a lone model, unless the server is told to end before it is there; gives whether it was not.
async fn load_alone(app: &App) -> anyhow::Result<bool> {
    let told = app.shutdown.reached(Phase::Draining);
    match until(told, app.models.load_alone()).await {
        Some(loaded) => loaded.map(|()| true),
        None => Ok(false),
    }
}

/// The first wish that it end drains, the second stops.
async fn heed(signals: &mut Signals, shutdown: &Shutdown, rereading: &Rereading) {
    loop {
        match signals.next().await {
            Wish::Reread => rereading.wish(),
            Wish::End if shutdown.phase() == Phase::Open => shutdown.advance(Phase::Draining),
            Wish::End => shutdown.advance(Phase::Stopped),
        }
    }
}

/// The models that were named, each with what loads it. Their files are opened here: what is not there is
/// said at once.
fn offered(
    args: &ServeArgs,
    options: &EngineOptions,
    known: &Known<'_>,
    max_waiting: usize,
) -> anyhow::Result<Vec<Offered>> {
    let mut names = BTreeSet::new();
    let mut offered = Vec::new();
    let roof = Arc::new(Roof::new(options.device, known.store.clone()));
    for model in &args.model {
        let (given, reference) = args::named(model);
        let name = match given {
            Some(name) => name.to_owned(),
            None => short_name(reference)?,
        };
        if !names.insert(name.clone()) {
            bail!("two models are called {name:?}: give one another name, as -m other={reference}");
        }
        let checkpoint = known.find(reference)?.open()?;
        let context_length = options.checked(&checkpoint.config)?.max_model_len;
        let store = known.store.clone();
        let (verbose, format) = (known.report.is_verbose(), args.telling.log_format);
        let options = EngineOptions {
            warm_up: !args.no_warmup,
            ..options.clone()
        };
        let roof = Arc::clone(&roof);
        let heeds_priority = args.limits.scheduling_policy == SchedulingPolicy::Priority;
        offered.push(Offered {
            name,
            context_length,
            load: Arc::new(move || {
                let loaded = load(
                    &checkpoint,
                    &options,
                    &store,
                    &roof,
                    logs::reporter(verbose, Some(format)),
                    max_waiting,
                    context_length,
                );
                Ok(loaded?.heeding_priority(heeds_priority))
            }),
        });
    }
    Ok(offered)
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

fn load(
    checkpoint: &Checkpoint,
    options: &EngineOptions,
    store: &Store,
    roof: &Roof,
    report: Reporter,
    max_waiting: usize,
    context_length: usize,
) -> anyhow::Result<Loaded> {
    let template = match checkpoint.text.chat_template {
        Some(_) => Some(ChatTemplate::from_assets(
            &checkpoint.text,
            Some(host_time::strftime()),
        )?),
        None => None,
    };
    let rates = roof.rates();
    let handle_options = HandleOptions {
        max_waiting,
        ..HandleOptions::default()
    };
    let (generation, pooling) = (checkpoint.generation, checkpoint.pooling.clone());
    let (checkpoint, options, store) = (checkpoint.clone(), options.clone(), store.clone());
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
    Ok(loaded.under(rates))
}
