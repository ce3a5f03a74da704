//! The file of answers: one line an answer, written at once and whole, so that whatever ends the
//! program leaves a file that the next run goes on with.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{BatchError, Lines, without_place};

/// How every line begins.
const BEGINNING: &[u8] = b"{\"id\":\"batch_req_";

/// What is read of an answer again.
#[derive(Deserialize)]
struct Head {
    custom_id: String,
}

/// A file of answers that grows.
#[derive(Debug)]
pub struct Answers {
    path: PathBuf,
    file: File,
    lines: usize,
}

impl Answers {
    /// Opens the file, or makes it, and tells whose answers it has. A line that was cut when it was
    /// written is taken away.
    ///
    /// # Errors
    /// [`BatchError`]: the host's, or a line that is no answer, as the file may be something else.
    pub fn open(path: &Path) -> Result<(Self, HashSet<String>), BatchError> {
        let io = |source| BatchError::Io {
            path: path.to_owned(),
            source,
        };
        let mut open = OpenOptions::new();
        let file = open.read(true).append(true).create(true).open(path);
        let file = file.map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(io(io::Error::other("it is no regular file")));
        }
        let mut done = HashSet::new();
        let mut lines = Lines::new(path, BufReader::new(file.try_clone().map_err(io)?));
        let (mut whole, mut end) = (0, 0);
        while let Some((line, offset, text)) = lines.next()? {
            let wrong = |cause: String| BatchError::Line {
                path: path.to_owned(),
                line,
                cause,
            };
            let known = text.len().min(BEGINNING.len());
            if text[..known] != BEGINNING[..known] {
                let cause =
                    "it is no answer of `twoclock batch`: name another file for the answers";
                return Err(wrong(cause.into()));
            }
            if !text.ends_with(b"\n") {
                // Cut while it was written; nothing can follow it.
                break;
            }
            let head: Head = serde_json::from_slice(text)
                .map_err(|e| wrong(format!("it is no answer: {}", without_place(&e))))?;
            done.insert(head.custom_id);
            whole = line;
            end = offset + text.len() as u64;
        }
        file.set_len(end).map_err(io)?;
        let answers = Self {
            path: path.to_owned(),
            file,
            lines: whole,
        };
        Ok((answers, done))
    }

    /// Adds an answer: a status and a body.
    ///
    /// # Errors
    /// The host's.
    pub fn write(&mut self, custom_id: &str, status: u16, body: &Value) -> Result<(), BatchError> {
        self.lines += 1;
        let line = json!({
            "id": format!("batch_req_{}", self.lines),
            "custom_id": custom_id,
            "response": {
                "status_code": status,
                "request_id": format!("req_{}", self.lines),
                "body": body,
            },
            "error": null,
        });
        // One write, past all buffers of this program.
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|source| BatchError::Io {
            path: self.path.clone(),
            source,
        })
    }
}
