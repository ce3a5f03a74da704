//! Texts that come in: files and standard input, bounded, UTF-8. Knows nothing of what they are for.

use std::fs::{self, File};
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, bail};

use crate::store::human_bytes;

/// Longest text taken, bytes: far beyond every context. Splitting one into tokens takes some 120 bytes
/// a byte, and a JSON value as much, so that this is 2 GB at most.
pub const MAX_TEXT: u64 = 16 << 20;
/// Longest list of ids taken, bytes: each is some bytes of text, and takes a few times its length.
pub const MAX_IDS: u64 = 64 << 20;

/// The text of a file.
///
/// # Errors
/// It is no regular file, too long, or not UTF-8.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let unreadable = || format!("{} cannot be read", path.display());
    // Asked before it is opened, as opening a pipe waits for a writer.
    if !fs::metadata(path).with_context(unreadable)?.is_file() {
        bail!("{}, as it is no regular file", unreadable());
    }
    let file = File::open(path).with_context(unreadable)?;
    read(file, MAX_TEXT, &path.display().to_string())
}

/// What is wrong with a text that should be JSON. Of any letter where a value should begin, the parser says
/// that it expected an "ident", which tells nobody anything.
pub fn json_fault(error: &serde_json::Error) -> String {
    let said = error.to_string();
    said.replacen("expected ident", "no value begins so", 1)
}

/// The whole of standard input, as it is: `most` bytes or fewer.
///
/// # Errors
/// It is too long, or not UTF-8.
pub fn read_stdin(most: u64) -> anyhow::Result<String> {
    read(io::stdin().lock(), most, "standard input")
}

/// The next line of standard input, without its end; `None` where there is none left.
///
/// # Errors
/// `InvalidData` where it is not UTF-8 and `FileTooLarge` where it is too long; otherwise the host's.
pub fn read_line() -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let input = io::stdin().lock();
    input.take(MAX_TEXT + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() as u64 > MAX_TEXT {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!(
                "a line of standard input is too long: it may have {} at most",
                human_bytes(MAX_TEXT)
            ),
        ));
    }
    if line.ends_with(b"\n") {
        line.pop();
        if line.ends_with(b"\r") {
            line.pop();
        }
    }
    let line = String::from_utf8(line);
    Ok(Some(
        line.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?,
    ))
}

fn read(source: impl Read, most: u64, name: &str) -> anyhow::Result<String> {
    let unreadable = || format!("{name} cannot be read");
    let mut text = Vec::new();
    source
        .take(most + 1)
        .read_to_end(&mut text)
        .with_context(unreadable)?;
    if text.len() as u64 > most {
        bail!(
            "{name} is too long: it may have {} at most",
            human_bytes(most)
        );
    }
    String::from_utf8(text).with_context(unreadable)
}
