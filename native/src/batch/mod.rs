//! The `batch` command: a file of requests in, a file of answers out. Owns the order of things; what
//! a request says is `openai`'s.

pub mod answers;
pub mod args;
pub mod input;
pub mod job;
mod seed;
pub mod summary;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::weights::Checkpoint;

use crate::engine::{self, EngineOptions};
use crate::host_time;
use crate::interrupt;
use crate::output;
use crate::report::Reporter;
use crate::store::Store;
use answers::Answers;
use args::BatchArgs;
use input::Input;
use job::Job;
use summary::Summary;

/// Between two looks at the clock and for Ctrl-C, while a request's time has not come.
const NAP: Duration = Duration::from_millis(20);

/// Whether a summary can be written there without harm, before there is one.
fn check_summary(path: &Path, args: &BatchArgs) -> anyhow::Result<()> {
    let unwritable = || format!("{} cannot be written", path.display());
    if fs::metadata(path).is_ok_and(|known| !known.is_file()) {
        bail!("{}: it is no regular file", unwritable());
    }
    let mut open = fs::OpenOptions::new();
    open.append(true)
        .create(true)
        .open(path)
        .with_context(unwritable)?;
    let same = |other: &Path| {
        let pair = fs::canonicalize(path)
            .ok()
            .zip(fs::canonicalize(other).ok());
        pair.is_some_and(|(a, b)| a == b)
    };
    if same(&args.input) || same(&args.output) {
        bail!(
            "{}: it holds the requests or their answers; name another file for the summary",
            unwritable()
        );
    }
    Ok(())
}

/// Answers every request of a file that has no answer yet.
///
/// # Errors
/// Files that cannot be read, written or understood, a model that cannot be loaded, a device that is
/// gone for good. A request's own fault is its answer.
pub fn run(
    checkpoint: &Checkpoint,
    args: &BatchArgs,
    options: &EngineOptions,
    store: &Store,
    report: &Reporter,
) -> anyhow::Result<()> {
    if let Some(path) = &args.summary {
        check_summary(path, args)?;
    }
    // What the files say is settled before the model is loaded, so that a mistake costs no wait.
    let (mut answers, done) = Answers::open(&args.output)?;
    let input = Input::scan(&args.input, &done)?;
    let skipped = input.num_done();
    if skipped > 0 {
        let all = skipped + input.entries().len();
        report.note(&format!(
            "{skipped} of {all} requests have their answers already"
        ));
    }
    let mut summary = Summary::new(skipped);
    if !input.entries().is_empty() {
        let tokenizer = Tokenizer::from_assets(&checkpoint.text)?;
        let template = match checkpoint.text.chat_template {
            Some(_) => Some(ChatTemplate::from_assets(
                &checkpoint.text,
                Some(host_time::strftime()),
            )?),
            None => None,
        };
        let mut engine = engine::load(checkpoint, tokenizer, options, store, report)?;
        answers.drop_failed()?;
        interrupt::listen();
        let bar = report.counter("answering", input.entries().len());
        let job = Job {
            engine: &mut engine,
            template: template.as_ref(),
            defaults: &checkpoint.generation,
            model: &args.model,
            interrupted: &interrupt::take,
            rest: &|| std::thread::sleep(NAP),
            told: &|done| bar.set_position(done as u64),
        };
        let ran = job.run(input, &mut answers, &mut summary);
        bar.finish_and_clear();
        engine.core().runner().executor().save_pipelines();
        ran?;
    }
    if summary.interrupted > 0 {
        interrupt::heed();
        report.note(&format!(
            "stopped with {} requests unanswered: the same command goes on with them",
            summary.interrupted
        ));
    }
    let text = format!("{:#}\n", summary.as_json());
    match &args.summary {
        Some(path) => fs::write(path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?,
        None => output::print(&text)?,
    }
    Ok(())
}
