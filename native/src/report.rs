//! What the user is told while something takes its time: notes, details on request, a progress
//! bar on a terminal. Everything goes to one sink (standard error in the program), so that
//! standard output carries results only. Knows nothing of what is being done.

use std::borrow::Cow;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Tells the user what happens.
pub struct Reporter {
    verbose: bool,
    bars: bool,
    sink: Mutex<Box<dyn Write + Send>>,
}

impl Reporter {
    /// Reports to standard error, with progress bars if that is a terminal.
    pub fn stderr(verbose: bool) -> Self {
        Self {
            verbose,
            bars: true,
            sink: Mutex::new(Box::new(std::io::stderr())),
        }
    }

    /// Reports into `sink`, without bars.
    pub fn to(sink: Box<dyn Write + Send>, verbose: bool) -> Self {
        Self {
            verbose,
            bars: false,
            sink: Mutex::new(sink),
        }
    }

    /// The same, with progress bars if standard error is a terminal.
    #[must_use]
    pub fn beside_bars(self) -> Self {
        Self { bars: true, ..self }
    }

    /// The same, without progress bars, which are drawn by whoever does the work: a terminal that is stopped stops it.
    #[must_use]
    pub fn without_bars(self) -> Self {
        Self {
            bars: false,
            ..self
        }
    }

    /// Whether details are told.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Something every user wants to know.
    pub fn note(&self, text: &str) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        // A closed standard error is no reason to stop the work itself.
        let _ = writeln!(sink, "{text}");
    }

    /// Something only a user looking for a fault wants to know.
    pub fn detail(&self, text: &str) {
        if self.verbose {
            self.note(text);
        }
    }

    /// A bar over `total` bytes; it shows only on a terminal.
    pub fn bar(&self, label: &'static str, total: Option<u64>) -> ProgressBar {
        let target = if self.bars {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::with_draw_target(Some(total), target),
                "{msg:>12} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            None => (
                ProgressBar::with_draw_target(None, target),
                "{msg:>12} {spinner} {bytes} {bytes_per_sec}",
            ),
        };
        styled(bar, template, label)
    }

    /// A bar over `total` stages of unlike length: its message says which one is under way, and its clock
    /// runs meanwhile. [`begin`](Stages::begin) names each.
    pub fn stages(&self, total: usize) -> Stages {
        let bar = self.counter("", total);
        let bar = styled(bar, "{spinner} {pos}/{len} {elapsed} {msg}", "");
        // Hidden, it needs no thread.
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Stages { bar, begun: false }
    }

    /// A bar over `total` things that are counted, not measured in bytes.
    pub fn counter(&self, label: &'static str, total: usize) -> ProgressBar {
        let target = if self.bars {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total as u64), target);
        styled(
            bar,
            "{msg:>12} [{bar:30}] {pos}/{len} {per_sec} {eta}",
            label,
        )
    }
}

/// Between two looks of a bar that nobody moves: seldom enough to disturb no measurement.
const TICK: Duration = Duration::from_millis(500);

/// Which of several stages is under way. It is gone from the terminal when dropped.
pub struct Stages {
    bar: ProgressBar,
    begun: bool,
}

impl Stages {
    /// The stage before is over, and this one begins.
    pub fn begin(&mut self, what: impl Into<Cow<'static, str>>) {
        self.bar.inc(u64::from(self.begun));
        self.begun = true;
        self.bar.set_message(what);
    }

    /// Something for who looks for a fault, told above the bar.
    pub fn detail(&self, report: &Reporter, text: &str) {
        self.bar.suspend(|| report.detail(text));
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str, label: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    bar.with_style(style).with_message(label)
}
