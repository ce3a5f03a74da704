//! Where the log goes, how its lines look, and which of them are written. Knows nothing of what they say.

use std::env;
use std::io::{self, Write};
use std::panic;

use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::report::Reporter;

/// Who says what is written whatever the filter: what scripts wait for, and why a program ends.
pub const ALWAYS: &str = "program";

/// What says which lines are written, as other programs have it.
const VARIABLE: &str = "RUST_LOG";

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
/// `RUST_LOG` is no filter.
pub fn start(verbose: bool, server: Option<LogFormat>) -> anyhow::Result<()> {
    let level = match (verbose, server) {
        (true, _) => LevelFilter::DEBUG,
        (false, Some(_)) => LevelFilter::INFO,
        (false, None) => LevelFilter::WARN,
    };
    let lines = fmt::layer()
        .with_writer(io::stderr)
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
    if server == Some(LogFormat::Json) {
        panic::set_hook(Box::new(|panicked| {
            tracing::error!(target: ALWAYS, "{panicked}");
        }));
    }
    Ok(())
}

/// Who tells what is done meanwhile: to standard error, and where programs read that, in the log.
pub fn reporter(verbose: bool, server: Option<LogFormat>) -> Reporter {
    match server {
        Some(LogFormat::Json) => Reporter::to(Box::new(Lines::default()), verbose),
        _ => Reporter::stderr(verbose),
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
