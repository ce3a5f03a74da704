//! The file of answers: one line an answer, written at once and whole, so that whatever ends the
//! program leaves a file that the next run goes on with.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::input::{BatchError, Lines, without_place};

/// How every id begins.
const PREFIX: &str = "batch_req_";
/// How every line begins.
const BEGINNING: &[u8] = b"{\"id\":\"batch_req_";

/// What comes right after the name and the status of an answer. Inside a text its quotes would be
/// escaped, so that its first place is that one.
const BODY: &[u8] = b",\"body\":";

/// What is read of an answer again.
#[derive(Deserialize)]
struct Head {
    id: String,
    custom_id: String,
    response: ResponseHead,
}

#[derive(Deserialize)]
struct ResponseHead {
    status_code: u16,
}

/// A line.
#[derive(Serialize)]
struct Answer<'a, T> {
    id: String,
    custom_id: &'a str,
    response: Response<'a, T>,
    error: (),
}

#[derive(Serialize)]
struct Response<'a, T> {
    status_code: u16,
    request_id: String,
    body: &'a T,
}

impl Head {
    /// Reads how an answer begins.
    fn read(text: &[u8]) -> Result<Self, String> {
        let end = text.windows(BODY.len()).position(|bytes| bytes == BODY);
        let end = end.ok_or("it is no answer: there is no body")?;
        let head = [&text[..end], b"}}"].concat();
        serde_json::from_slice(&head).map_err(|e| format!("it is no answer: {}", without_place(&e)))
    }

    /// The request was at no fault, so that it may be answered another time.
    fn failed(&self) -> bool {
        self.response.status_code >= 500
    }
}

/// A file of answers that grows.
#[derive(Debug)]
pub struct Answers {
    path: PathBuf,
    file: File,
    /// The highest number that an answer has.
    last: usize,
    /// Where the lines of status 500 or more stand: first byte and length.
    failed: Vec<(u64, u64)>,
}

impl Answers {
    /// Opens the file, or makes it, and tells whose answers it has; those of status 500 or more are
    /// none. A line that was cut when it was written is taken away.
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
        lock(&file).map_err(io)?;
        let mut done = HashSet::new();
        let mut failed = Vec::new();
        let mut lines = Lines::new(path, BufReader::new(file.try_clone().map_err(io)?));
        let (mut last, mut end) = (0, 0);
        while let Some(beginning) = lines.next_beginning()? {
            let text = beginning.text;
            let wrong = |cause: String| BatchError::Line {
                path: path.to_owned(),
                line: beginning.line,
                cause,
            };
            let known = text.len().min(BEGINNING.len());
            if text[..known] != BEGINNING[..known] {
                let cause =
                    "it is no answer of `twoclock batch`: name another file for the answers";
                return Err(wrong(cause.into()));
            }
            if !beginning.is_whole {
                // Cut while it was written; nothing can follow it.
                break;
            }
            let head = Head::read(text).map_err(wrong)?;
            let number = head.id[PREFIX.len()..].parse();
            let number =
                number.map_err(|_| wrong("it is no answer: its id has no number".into()))?;
            if head.failed() {
                failed.push((beginning.offset, beginning.length));
            } else {
                done.insert(head.custom_id);
            }
            last = last.max(number);
            end = beginning.offset + beginning.length;
        }
        file.set_len(end).map_err(io)?;
        let answers = Self {
            path: path.to_owned(),
            file,
            last,
            failed,
        };
        Ok((answers, done))
    }

    /// Takes the answers of status 500 or more out of the file, so that others can come in their place.
    /// Whatever ends the program meanwhile, the file is as before or as after.
    ///
    /// # Errors
    /// The host's.
    pub fn drop_failed(&mut self) -> Result<(), BatchError> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let path = self.path.clone();
        let io = |source| BatchError::Io {
            path: path.clone(),
            source,
        };
        self.file = self.without_failed().map_err(io)?;
        self.failed.clear();
        Ok(())
    }

    /// The file anew, without the failed answers.
    fn without_failed(&mut self) -> io::Result<File> {
        // The file itself, where its name is a link.
        let path = fs::canonicalize(&self.path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new_path = path.with_file_name(name);
        let mut new = File::create(&new_path)?;
        lock(&new)?;
        new.set_permissions(self.file.metadata()?.permissions())?;
        let mut from = 0;
        let end = (self.file.metadata()?.len(), 0);
        for &(offset, length) in self.failed.iter().chain([&end]) {
            self.file.seek(SeekFrom::Start(from))?;
            io::copy(&mut (&self.file).take(offset - from), &mut new)?;
            from = offset + length;
        }
        new.sync_all()?;
        fs::rename(&new_path, &path)?;
        // This one keeps the lock: an appending one could not take it before the name is free.
        new.seek(SeekFrom::End(0))?;
        Ok(new)
    }

    /// The number of the next answer.
    pub fn next_number(&self) -> usize {
        self.last + 1
    }

    /// Adds an answer: a status and a body.
    ///
    /// # Errors
    /// The host's.
    pub fn write(
        &mut self,
        custom_id: &str,
        status_code: u16,
        body: &impl Serialize,
    ) -> Result<(), BatchError> {
        self.last += 1;
        let line = Answer {
            id: format!("{PREFIX}{}", self.last),
            custom_id,
            response: Response {
                status_code,
                request_id: format!("req_{}", self.last),
                body,
            },
            error: (),
        };
        let bytes = serde_json::to_vec(&line).map_err(io::Error::from);
        let written = bytes.and_then(|mut bytes| {
            bytes.push(b'\n');
            // One write, past all buffers of this program.
            self.file.write_all(&bytes)
        });
        written.map_err(|source| BatchError::Io {
            path: self.path.clone(),
            source,
        })
    }
}
/// Holds a file of answers against others who would write into it, until it is closed.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another `twoclock batch` is writing into it: wait for it, or name another file",
        )),
        // Not every file system has locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
