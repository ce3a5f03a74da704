//! Standard output and standard error of the program. Owns that neither may take it down: a reader
//! who left, a full disk. Knows nothing of what is written.

use std::io::{self, ErrorKind, Write};
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

/// Why a result could not be given.
#[derive(Debug, Error)]
pub enum OutputError {
    /// Whoever read it has seen enough (`| head`). No failure of the program's.
    #[error("standard output was closed by its reader")]
    Closed,
    /// It was closed when the program began (`>&-`). Rust then puts `/dev/null` in its place, which takes
    /// everything.
    #[error(
        "standard output cannot be written: it was closed before the program began; redirect it \
         into a file, or to /dev/null if the result is not wanted"
    )]
    NeverOpen,
    /// It is a file on a full disk, for example.
    #[error("standard output cannot be written: {0}; what it got is not whole")]
    Failed(String),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Whether standard output was closed when the program began; looked up before the runtime starts, which
/// hides it.
#[cfg(unix)]
static NEVER_OPEN: AtomicBool = AtomicBool::new(false);

#[cfg(unix)]
#[allow(unsafe_code, reason = "nothing safe runs before the runtime")]
mod before_main {
    use super::{NEVER_OPEN, Ordering};

    extern "C" fn look() {
        // SAFETY: asks for a descriptor's flags; touches no memory.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        NEVER_OPEN.store(flags == -1, Ordering::Relaxed);
    }

    // SAFETY: the section lists functions without arguments that are called before `main`; this one
    // needs nothing that is set up later.
    #[used]
    #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
    #[cfg_attr(
        target_vendor = "apple",
        unsafe(link_section = "__DATA,__mod_init_func")
    )]
    static LOOK: extern "C" fn() = look;
}

/// Checks that there is a standard output at all: long work should not end in a result that nobody gets.
///
/// # Errors
/// It was closed when the program began.
pub fn check() -> Result<(), OutputError> {
    #[cfg(unix)]
    if NEVER_OPEN.load(Ordering::Relaxed) {
        return Err(OutputError::NeverOpen);
    }
    Ok(())
}

/// Writes a result to standard output, at once.
///
/// # Errors
/// It is closed or cannot be written.
pub fn print(text: &str) -> Result<(), OutputError> {
    check()?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Tells the user something on standard error. Nobody hearing it is no reason to stop.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// An error and its causes as one line: a cause its error tells already is not told twice, and what
/// came out of files cannot command the terminal.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    one_line(&told)
}

/// Most characters shown of a text that came out of a file, or of an error that tells of one.
const MOST_SHOWN: usize = 4000;

/// A text as one line that cannot command a terminal; of a long one its beginning and its end.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    let count = text.chars().count();
    let left_out = MOST_SHOWN * 3 / 4..MOST_SHOWN * 3 / 4 + count.saturating_sub(MOST_SHOWN);
    for (at, c) in text.chars().enumerate() {
        if left_out.contains(&at) {
            if at == left_out.start {
                line.push_str(" … ");
            }
            continue;
        }
        match c {
            '\n' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// Most characters that are said again of what outsiders say, or files of theirs.
const MOST_REPEATED: usize = 200;

/// The beginning of a text that somebody else chose, as long as it is said again.
pub fn beginning(text: &str) -> String {
    match text.char_indices().nth(MOST_REPEATED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn of_a_long_text_its_two_ends_are_shown() {
        let whole = "a".repeat(MOST_SHOWN);
        assert_eq!(one_line(&whole), whole);
        let long = format!("first {}\u{9b}last", "é".repeat(1 << 20));
        let shown = one_line(&long);
        assert!(shown.chars().count() < MOST_SHOWN + 20);
        assert!(shown.starts_with("first é") && shown.contains(" … "));
        assert!(shown.ends_with("\\u{9b}last"), "{shown}");
    }

    #[test]
    fn what_others_say_is_said_again_in_part() {
        let whole = "é".repeat(MOST_REPEATED);
        assert_eq!(beginning(&whole), whole);
        assert_eq!(beginning(&format!("{whole}a")), format!("{whole}…"));
        assert_eq!(beginning(""), "");
    }

    #[test]
    fn an_error_is_one_line_that_says_each_thing_once() {
        let source = io::Error::other("no space");
        let error = Err::<(), _>(source)
            .context("f.gguf: no space")
            .context("the model \u{1b}[2J\ncannot be read")
            .unwrap_err();
        assert_eq!(
            sentence(&error),
            "the model \\u{1b}[2J cannot be read: f.gguf: no space"
        );
    }
}
