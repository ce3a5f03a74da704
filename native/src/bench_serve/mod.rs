//! The `bench-serve` command: load on a server of OpenAI's protocol, and how it bears it. Owns the order of
//! things.

pub mod args;
pub mod client;
pub mod events;
pub mod lengths;
pub mod load;
pub mod plot;
pub mod stream;
pub mod summary;
pub mod times;
pub mod workload;

use std::env;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, bail};
use serde_json::json;

use crate::interrupt;
use crate::picture;
use crate::report::Reporter;
use crate::serve::key_file;
use args::{BenchServeArgs, Endpoint};
use client::Client;
use plot::Plot;
use summary::{Asked, Summary};

/// Longest sequence where a server does not say it.
const USUAL_CONTEXT: usize = 4096;

/// Sends the load and gives what it came to, and whether every request was answered.
///
/// # Errors
/// Arguments that do not go together, a server that is none, or a file that cannot be read or written.
pub fn run(
    args: &BenchServeArgs,
    report: &Reporter,
) -> anyhow::Result<(String, anyhow::Result<()>)> {
    if args.endpoint == Endpoint::Chat && args.token_ids.is_some() {
        bail!("--token-ids goes with --endpoint completions alone: a chat is text");
    }
    if let Some(path) = &args.plot {
        picture::check(path)?;
    }
    let key = key(args)?;
    let mut client = Client::new(args, key.as_deref())?;
    let listed = client.models()?;
    if args.model.is_none() {
        let first = listed
            .first()
            .context("the server lists no model: name one with --model")?;
        client.set_model(first.id.clone());
    }
    let known = listed.iter().find(|model| model.id == client.model());
    let context = known
        .and_then(|model| model.max_model_len)
        .unwrap_or(USUAL_CONTEXT);
    let jobs = workload::jobs(args, context)?;
    interrupt::listen();
    let stopped = AtomicBool::new(false);
    let stop = || {
        // Asked no more once it said so.
        if !stopped.load(Ordering::Relaxed) && interrupt::take() {
            stopped.store(true, Ordering::Relaxed);
        }
        stopped.load(Ordering::Relaxed)
    };
    load::closed(&workload::warmup(args), 1, |job| client.complete(job), stop);
    let bar = report.counter("answered", jobs.len());
    let done = AtomicUsize::new(0);
    let send = |job: &workload::Job| {
        let answer = client.complete(job);
        bar.set_position(done.fetch_add(1, Ordering::Relaxed) as u64 + 1);
        answer
    };
    let is_open = args.request_rate.is_some() || args.trace.is_some();
    let run = match is_open {
        true => load::open(
            &jobs,
            args.concurrency.unwrap_or(load::MAX_UNDER_WAY),
            send,
            stop,
        ),
        false => load::closed(&jobs, args.concurrency.unwrap_or(1), send, stop),
    };
    bar.finish_and_clear();
    if let Some(hint) = client.hint() {
        report.note(hint);
    }
    if stopped.load(Ordering::Relaxed) {
        interrupt::heed();
    }
    let asked = Asked {
        base_url: args.base_url.clone(),
        model: client.model().to_owned(),
        load: match (&args.trace, args.request_rate) {
            (Some(trace), rate) => {
                json!({"trace": trace, "rate": rate, "concurrency": args.concurrency})
            }
            (None, Some(rate)) => json!({"rate": rate, "concurrency": args.concurrency}),
            (None, None) => json!({"concurrency": args.concurrency.unwrap_or(1)}),
        },
        ttft_slo_ms: args.ttft_slo_ms,
        tpot_slo_ms: args.tpot_slo_ms,
        seed: args.seed,
        requests: jobs.len(),
    };
    let summary = Summary::of(&run, asked);
    if let Some(path) = &args.plot {
        picture::write(&Plot(&summary), path)?;
    }
    let text = match args.json {
        true => format!("{}\n", summary.as_json()),
        false => summary.table(),
    };
    let verdict = match summary.failed {
        0 => Ok(()),
        failed => Err(anyhow::anyhow!(
            "{failed} of {} requests failed",
            summary.requests
        )),
    };
    Ok((text, verdict))
}

/// The key to send, if any.
fn key(args: &BenchServeArgs) -> anyhow::Result<Option<String>> {
    let key = match &args.api_key_file {
        Some(path) => Some(key_file::first_key(path)?),
        None => env::var("OPENAI_API_KEY").ok(),
    };
    let key = key
        .map(|key| key.trim().to_owned())
        .filter(|key| !key.is_empty());
    if key
        .as_ref()
        .is_some_and(|key| !key.bytes().all(|b| b.is_ascii_graphic()))
    {
        bail!("the key is none: it must be one line of visible ASCII");
    }
    Ok(key)
}
