//! Texts that come in: files and standard input, bounded, UTF-8. Knows nothing of what they are for.

use std::fs::{self, File};
use std::io::{self, Read};
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

/// The whole of standard input, as it is: `most` bytes or fewer.
///
/// # Errors
/// It is too long, or not UTF-8.
pub fn read_stdin(most: u64) -> anyhow::Result<String> {
    read(io::stdin().lock(), most, "standard input")
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
