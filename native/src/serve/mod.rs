//! The `serve` command: models over HTTP, in OpenAI's protocol. Owns the order of things at the beginning and
//! the end; what a body says is `openai`'s.

pub mod access;
pub mod access_line;
pub mod allowed_hosts;
pub mod answer_room;
pub mod answers;
pub mod api_error;
pub mod app;
pub mod args;
pub mod asker;
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
pub mod job;
pub mod key_file;
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
pub mod opening;
pub mod page;
pub mod paths;
pub mod process_facts;
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
pub mod socket;
pub mod status;
pub mod steps;
pub mod stream;
pub mod telemetry;
pub mod tokens;
pub mod unread;
pub mod unsent;
pub mod until;
pub mod whole;
pub mod whole_body;
pub mod write_limit;

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::runtime;
use tokio::task::spawn_blocking;

use crate::engine::EngineOptions;
use crate::heap;
use crate::logs::{self, LogFormat};
use crate::models::Models as Known;
use crate::open_files;
use allowed_hosts::AllowedHosts;
use app::{App, Settings};
use args::{LimitArgs, ServeArgs};
use auth::ApiKeys;
use connections::Connections;
use listener::Bounds;
use models::{ModelLimits, Models};
use opening::Opening;
use reading::Reading;
use rereading::Rereading;
use server::Server;
use shutdown::{Phase, Shutdown};
use signals::{Signals, Wish};
use telemetry::Telemetry;
use until::until;

/// Threads that ask the host: they read keys and what is measured, and give memory back.
const HOST_THREADS: usize = 3;

/// Serves models until a signal ends it.
///
/// # Errors
/// A model that is not there, or is alone and cannot be loaded; an address that cannot be listened at; keys
/// that cannot be read; a name or an origin that is none; no room for open files.
pub fn run(args: &ServeArgs, options: &EngineOptions, known: &Known<'_>) -> anyhow::Result<()> {
    let LimitArgs {
        max_queue: _,
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
    heap::keep_little();
    let cores = app::num_cores();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 8))
        // Those that read requests, those that load or unload a model, each of which has a seat, the last to send spans,
        // and those that ask the host.
        .max_blocking_threads(
            Reading::max_threads(cores) + max_loaded_models as usize + 1 + HOST_THREADS,
        )
        .thread_name("serve")
        .enable_io()
        .enable_time()
        .build()
        .context("the host gives no threads for the server")?;
    let served = runtime.block_on(async {
        // First of all, as a signal nobody listens to ends the program, one that asks to read anew too.
        let signals = Signals::listen().context("the host lets no signal be listened to")?;
        let keys = ApiKeys::load(args.place.api_key_file.as_deref())?;
        if !keys.is_open() {
            tracing::info!(keys = keys.num(), "requests need a key");
        }
        let cors_origins = cors::origins(&args.place.cors_origin)?;
        let shutdown = Shutdown::default();
        heed(signals, shutdown.clone(), keys.clone());
        let opening = Opening::new(args, options, known);
        let opened = spawn_blocking(move || opening.open());
        let Some(offered) = until(shutdown.reached(Phase::Draining), opened).await else {
            tracing::info!("told to end before anything was loaded");
            return Ok(());
        };
        let offered = offered.context("opening the models met a fault")??;
        let (host, port) = (args.place.host.as_str(), args.place.port);
        let listener = socket::listen(host, port).await;
        let listener = listener.map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => {
                    ": another program has that port; give another with --port, or --port 0 for any that is free"
                }
                _ => "",
            };
            anyhow!("{host}:{port} cannot be listened at: {error}{hint}")
        })?;
        let at = listener.local_addr()?;
        let bounds = Bounds {
            header_timeout,
            write_timeout,
        };
        let connections = Connections::new(open_files::connections(max_connections)?);
        let settings = Settings {
            max_body: usize::try_from(max_body << 20).unwrap_or(usize::MAX),
            body_timeout,
            request_timeout,
            ping_interval,
        };
        let model_limits = ModelLimits {
            max_loaded: max_loaded_models as usize,
            ..ModelLimits::default()
        };
        let names = &args.place.allowed_host;
        let app = App {
            allowed_hosts: AllowedHosts::new(at.ip(), host, keys.is_open(), names)?,
            cors_origins,
            shutdown,
            telemetry: Telemetry::start(args.telling.otlp_endpoint.as_deref())?,
            connections,
            ..App::new(Models::new(offered, model_limits), settings, keys)
        };
        let server = Server::new(listener, app, bounds, drain_timeout, idle_unload);
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
    // What still reads a request, or opens a model, is not waited for.
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

/// Heeds signals from now on: the first wish that it end drains, the second stops.
fn heed(mut signals: Signals, shutdown: Shutdown, keys: ApiKeys) {
    let rereading = Rereading::start(move || keys.reread());
    tokio::spawn(async move {
        loop {
            match signals.next().await {
                Wish::Reread => rereading.wish(),
                Wish::End if shutdown.phase() == Phase::Open => shutdown.advance(Phase::Draining),
                Wish::End => shutdown.advance(Phase::Stopped),
            }
        }
    });
}
