//! The file of requests: read once to know what is in it, and line by line while it is worked on, so
//! that it may be larger than memory. Knows the lines' frame and not their bodies.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::Value;
use thiserror::Error;

use crate::store::human_bytes;
use crate::text_input::{MAX_TEXT, json_fault};

/// Why a file of requests or answers cannot be used.
#[derive(Debug, Error)]
pub enum BatchError {
    /// The host refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A line that no request can be.
    #[error("{}, line {line}: {cause}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what would do.
        cause: String,
    },
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Its line, counted from 1.
    pub line: usize,
    /// Its first byte.
    offset: u64,
    /// Its name, hashed.
    name: u64,
    /// Seconds from the start at which it comes; at once where it does not say.
    pub arrival: Option<f64>,
}

/// A request's frame.
#[derive(Clone, Debug, Deserialize)]
pub struct Framed {
    /// Its name.
    pub custom_id: String,
    /// HTTP's.
    #[serde(default)]
    pub method: Value,
    /// Path of the endpoint.
    #[serde(default)]
    pub url: Value,
    /// What is asked.
    #[serde(default)]
    pub body: Value,
}

/// A request's line, read again.
#[derive(Clone, Debug)]
pub enum Reading {
    /// A frame.
    Framed(Framed),
    /// It has a name, but what stands beside that is no request.
    Unreadable {
        /// Its name.
        custom_id: String,
        /// What is wrong.
        cause: String,
    },
}

/// What must be known of every line, and as much of it as stands before what is wrong with it.
#[derive(Debug, Default)]
struct Head {
    custom_id: Option<String>,
    arrival: Option<f64>,
    /// Why it is no request.
    fault: Option<String>,
}

impl Head {
    fn read(text: &[u8]) -> Self {
        let mut head = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(text);
        let read = reader.deserialize_map(&mut head);
        head.fault = match read.and_then(|()| reader.end()) {
            Err(e) if e.is_data() => Some(format!("it is no request: {}", without_place(&e))),
            Err(e) => Some(format!("it is not JSON: {}", without_place(&e))),
            Ok(()) if head.custom_id.is_none() => Some("it has no custom_id".to_owned()),
            Ok(()) if head.arrival.is_some_and(|s| !(0.0..1e9).contains(&s)) => {
                Some("arrival_s must be from 0 to a billion seconds".to_owned())
            }
            Ok(()) => None,
        };
        head
    }
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object with a custom_id")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "custom_id" if self.custom_id.is_some() => {
                    return Err(A::Error::duplicate_field("custom_id"));
                }
                "custom_id" => self.custom_id = Some(fields.next_value()?),
                "arrival_s" => self.arrival = fields.next_value()?,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Requests that have no answer yet.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    file: BufReader<File>,
    entries: Vec<Entry>,
    num_done: usize,
    hasher: RandomState,
}

impl Input {
    /// Reads the frame of every line; those of `done` are passed over.
    ///
    /// # Errors
    /// [`BatchError`], naming the first line whose name cannot be read or is another's.
    pub fn scan(path: &Path, done: &HashSet<String>) -> Result<Self, BatchError> {
        let io = |source| BatchError::Io {
            path: path.to_owned(),
            source,
        };
        // Opening a pipe that nobody writes to would wait for ever.
        if !fs::metadata(path).map_err(io)?.is_file() {
            return Err(io(io::Error::other("it is no regular file")));
        }
        let file = File::open(path).map_err(io)?;
        let mut lines = Lines::new(path, BufReader::new(file));
        let mut entries = Vec::new();
        let mut names: HashMap<String, usize> = HashMap::new();
        let hasher = RandomState::new();
        let mut num_done = 0;
        while let Some((line, offset, text)) = lines.next()? {
            let wrong = |cause: String| lines_error(path, line, cause);
            if text.trim_ascii().is_empty() {
                continue;
            }
            let head = Head::read(text);
            let Some(custom_id) = head.custom_id else {
                // Nobody to answer it to.
                return Err(wrong(head.fault.unwrap_or_default()));
            };
            if let Some(first) = names.insert(custom_id.clone(), line) {
                return Err(wrong(format!(
                    "custom_id {custom_id:?} is that of line {first} too: give each its own"
                )));
            }
            if done.contains(&custom_id) {
                num_done += 1;
                continue;
            }
            entries.push(Entry {
                line,
                offset,
                name: hasher.hash_one(&custom_id),
                // One that is refused has no time to wait for.
                arrival: head.arrival.filter(|_| head.fault.is_none()),
            });
        }
        entries.sort_by(|a, b| {
            let arrival = |e: &Entry| e.arrival.unwrap_or(0.0);
            arrival(a).total_cmp(&arrival(b))
        });
        Ok(Self {
            path: path.to_owned(),
            file: lines.file,
            entries,
            num_done,
            hasher,
        })
    }

    /// The requests, in the order they come.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Requests that had answers.
    pub fn num_done(&self) -> usize {
        self.num_done
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The file is no longer what it was.
    pub fn read(&mut self, entry: Entry) -> Result<Reading, BatchError> {
        let io = |source| BatchError::Io {
            path: self.path.clone(),
            source,
        };
        self.file.seek(SeekFrom::Start(entry.offset)).map_err(io)?;
        let mut text = Vec::new();
        let bounded = self.file.by_ref().take(MAX_TEXT + 1);
        { bounded }.read_until(b'\n', &mut text).map_err(io)?;
        // The name alone, as it was found: what stands beside it was not looked at then.
        let head = Head::read(&text);
        let is_same = |id: &String| self.hasher.hash_one(id) == entry.name;
        let Some(custom_id) = head.custom_id.filter(is_same) else {
            let changed = "it changed while it was read".into();
            return Err(lines_error(&self.path, entry.line, changed));
        };
        if let Some(fault) = head.fault {
            let cause = format!("line {} of the file: {fault}", entry.line);
            return Ok(Reading::Unreadable { custom_id, cause });
        }
        Ok(match serde_json::from_slice(&text) {
            Ok(framed) => Reading::Framed(framed),
            Err(error) => Reading::Unreadable {
                custom_id,
                cause: format!("the line is no request: {}", without_place(&error)),
            },
        })
    }
}

fn lines_error(path: &Path, line: usize, cause: String) -> BatchError {
    BatchError::Line {
        path: path.to_owned(),
        line,
        cause,
    }
}

/// What serde says, without its own line number: each line is a text of its own.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let said = json_fault(error);
    match said.rfind(" at line ") {
        Some(end) => format!("{} (column {})", &said[..end], error.column()),
        None => said,
    }
}

/// A line's number, counted from 1, its first byte, and its text with its end, if it has one.
pub(super) type Line<'a> = (usize, u64, &'a [u8]);

/// How a line begins, which may be of any length.
pub(super) struct Beginning<'a> {
    /// Counted from 1.
    pub line: usize,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes, its end included, if there is one.
    pub length: u64,
    /// It has an end.
    pub is_whole: bool,
    /// Its first bytes, as many as a line of requests may have.
    pub text: &'a [u8],
}

/// The lines of a file, with where they stand.
pub(super) struct Lines<'a> {
    path: &'a Path,
    file: BufReader<File>,
    text: Vec<u8>,
    line: usize,
    offset: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(path: &'a Path, file: BufReader<File>) -> Self {
        Self {
            path,
            file,
            text: Vec::new(),
            line: 0,
            offset: 0,
        }
    }

    /// How the next line begins, past whose end the file then stands; `None` where there is none left.
    pub(super) fn next_beginning(&mut self) -> Result<Option<Beginning<'_>>, BatchError> {
        let path = self.path;
        let io = |source| BatchError::Io {
            path: path.to_owned(),
            source,
        };
        self.text.clear();
        let bounded = self.file.by_ref().take(MAX_TEXT);
        let read = { bounded }.read_until(b'\n', &mut self.text);
        let mut length = read.map_err(io)? as u64;
        let mut is_whole = self.text.ends_with(b"\n");
        while length > 0 && !is_whole {
            let more = self.file.fill_buf().map_err(io)?;
            let end = more.iter().position(|byte| *byte == b'\n');
            let skipped = end.map_or(more.len(), |end| end + 1);
            if skipped == 0 {
                break;
            }
            is_whole = end.is_some();
            self.file.consume(skipped);
            length += skipped as u64;
        }
        if length == 0 {
            return Ok(None);
        }
        self.line += 1;
        let offset = self.offset;
        self.offset += length;
        Ok(Some(Beginning {
            line: self.line,
            offset,
            length,
            is_whole,
            text: &self.text,
        }))
    }

    /// The next line, which is bounded; `None` where there is none left.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, BatchError> {
        self.text.clear();
        let bounded = self.file.by_ref().take(MAX_TEXT + 1);
        let read = { bounded }.read_until(b'\n', &mut self.text);
        let read = read.map_err(|source| BatchError::Io {
            path: self.path.to_owned(),
            source,
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if read as u64 > MAX_TEXT {
            let cause = format!("it is longer than {}", human_bytes(MAX_TEXT));
            return Err(lines_error(self.path, self.line, cause));
        }
        let offset = self.offset;
        self.offset += read as u64;
        Ok(Some((self.line, offset, &self.text)))
    }
}
