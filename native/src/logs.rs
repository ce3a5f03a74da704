//! Where the log goes, how its lines look, and which of them are written. Knows nothing of what they say.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::io::{self, LineWriter, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::log_queue::LogQueue;
use crate::output;
use crate::report::Reporter;

/// Who says what is written whatever the filter: what scripts wait for, and why a program ends.
pub const ALWAYS: &str = "program";

/// What says which lines are written, as other programs have it.
const VARIABLE: &str = "RUST_LOG";

/// Where a server's lines wait for who reads them: it goes on meanwhile.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Longest time that the end of a program waits for who reads its log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a server's log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Begins to write the log to standard error: warnings, with `verbose` more. A server, which has a format, also says
/// who asked what, and when. `RUST_LOG` overrules that, but for [`ALWAYS`].
///
/// # Errors
/// `RUST_LOG` is no filter, or the host gives no thread.
pub fn start(verbose: bool, server: Option<LogFormat>) -> anyhow::Result<()> {
    let level = match (verbose, server) {
        (true, _) => LevelFilter::DEBUG,
        (false, Some(_)) => LevelFilter::INFO,
        (false, None) => LevelFilter::WARN,
    };
    let writer = match server {
        Some(_) => BoxMakeWriter::new(Queued(queue()?)),
        None => BoxMakeWriter::new(io::stderr),
    };
    let lines = fmt::layer()
        .with_writer(writer)
        // Where the log cannot be written (its reader has gone, its disk is full), work goes on without it.
        .log_internal_errors(false)
        .with_ansi(false);
    let lines = match server {
        Some(LogFormat::Json) => lines.json().flatten_event(true).boxed(),
        Some(LogFormat::Text) => lines.boxed(),
        None => lines.without_time().boxed(),
    };
    let filter = match env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => filter(&text)?,
        Err(env::VarError::NotUnicode(_)) => anyhow::bail!("{VARIABLE} is not UTF-8"),
        _ => Targets::new().with_default(level),
    };
    let filter = filter.with_target(ALWAYS, LevelFilter::TRACE);
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
    match server {
        Some(LogFormat::Json) => panic::set_hook(Box::new(|panicked| {
            tracing::error!(target: ALWAYS, "{panicked}");
        })),
        Some(LogFormat::Text) => panic::set_hook(Box::new(|panicked| say(&told(panicked)))),
        None => {}
    }
    Ok(())
}

/// Begins the queue of a server's lines.
fn queue() -> anyhow::Result<LogQueue> {
    let tell = |lines| {
        tracing::warn!(
            lines,
            "lines of the log were dropped: it was not read in time, or could not be written"
        );
    };
    let queue =
        LogQueue::start(io::stderr(), tell).context("the host gives no thread for the log")?;
    Ok(QUEUE.get_or_init(|| queue).clone())
}

/// What is said of a panic, as where nobody asks for another form.
fn told(panicked: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("thread '{name}' {panicked}\n{backtrace}"),
        _ => format!("thread '{name}' {panicked}"),
    }
}

/// Says a line as it is, whatever the filter, in a server's log or to standard error. Nobody hearing it is no reason to
/// stop.
pub fn say(text: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push_always(format!("{text}\n").as_bytes()),
        None => output::note(text),
    }
}

/// Lines of a server's log that nobody will read.
pub fn dropped() -> u64 {
    QUEUE.get().map_or(0, LogQueue::dropped)
}

/// Waits for who reads a server's log, a little: the program ends.
pub fn end() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LAST_WORDS);
    }
}

/// Who tells what is done meanwhile: to standard error, and where programs read that, in the log.
pub fn reporter(verbose: bool, server: Option<LogFormat>) -> Reporter {
    match (server, QUEUE.get()) {
        (Some(LogFormat::Json), _) => Reporter::to(Box::new(Lines::default()), verbose),
        (Some(LogFormat::Text), Some(queue)) => {
            Reporter::to(Box::new(LineWriter::new(queue.clone())), verbose).beside_bars()
        }
        _ => Reporter::stderr(verbose),
    }
}

/// Has each event's line in the queue.
struct Queued(LogQueue);

/// Puts what one event becomes into the queue.
struct QueuedLine {
    queue: LogQueue,
    is_always: bool,
}

impl Write for QueuedLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.is_always {
            true => self.queue.push_always(line),
            false => self.queue.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queued {
    type Writer = QueuedLine;

    fn make_writer(&'a self) -> QueuedLine {
        QueuedLine {
            queue: self.0.clone(),
            is_always: false,
        }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> QueuedLine {
        QueuedLine {
            is_always: meta.target() == ALWAYS,
            ..self.make_writer()
        }
    }
}

/// Has each line that is written in the log.
#[derive(Default)]
struct Lines {
    /// What has no end yet.
    begun: Vec<u8>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.begun);
                tracing::info!("{}", line.trim_end());
                self.begun.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Which lines are written, as `RUST_LOG` says it.
fn filter(text: &str) -> anyhow::Result<Targets> {
    let filter = text.trim().parse::<Targets>();
    filter.with_context(|| {
        format!("{VARIABLE} is {text:?}: it must be a level (error, warn, info, debug, trace, off) or a list such as info,access=warn")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_filter_is_a_level_or_a_list() {
        let of = |text: &str| filter(text).unwrap();
        let warns = of(" warn ");
        assert!(warns.would_enable("access", &Level::WARN));
        assert!(!warns.would_enable("access", &Level::INFO));
        let list = of("info,access=off,twoclock::serve=debug");
        assert!(list.would_enable("anything", &Level::INFO));
        assert!(!list.would_enable("access", &Level::ERROR));
        assert!(list.would_enable("twoclock::serve::models", &Level::DEBUG));
        for wrong in ["access=loud", "info,a=b=c"] {
            let said = format!("{:#}", filter(wrong).unwrap_err());
            assert!(
                said.contains("RUST_LOG") && said.contains("access=warn"),
                "{said}"
            );
        }
    }
}
