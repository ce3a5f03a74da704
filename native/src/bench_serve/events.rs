//! Server-sent events as they come: lines that end in LF, CR or both, several lines of data an event, comments. Knows
//! not what events say.

use std::io::{self, BufRead};

use thiserror::Error;

/// Longest event, and longest line, bytes.
const MOST: usize = 16 << 20;

/// Why there is no further event.
#[derive(Debug, Error)]
pub enum EventError {
    /// The connection's.
    #[error("the answer broke off: {0}")]
    Read(#[from] io::Error),
    /// It would never end.
    #[error("an event of the answer has more than {MOST} bytes")]
    Long,
}

/// The events of a body.
#[derive(Debug)]
pub struct Events<R> {
    body: R,
    line: Vec<u8>,
    /// The line before ended in CR: an LF now is a part of that end. It is not waited for.
    is_behind_cr: bool,
    is_first_line: bool,
}

impl<R: BufRead> Events<R> {
    /// Of this body.
    pub fn new(body: R) -> Self {
        Self {
            body,
            line: Vec::new(),
            is_behind_cr: false,
            is_first_line: true,
        }
    }

    /// What is left of the body.
    pub fn into_rest(self) -> R {
        self.body
    }

    /// The data of the next event that has some; `None` at the end, where an event that was not ended is none.
    ///
    /// # Errors
    /// [`EventError`].
    pub fn next_data(&mut self) -> Result<Option<Vec<u8>>, EventError> {
        let mut data: Option<Vec<u8>> = None;
        while self.read_line()? {
            if self.line.is_empty() {
                if data.is_some() {
                    return Ok(data);
                }
                continue;
            }
            let (field, value) = match self.line.iter().position(|byte| *byte == b':') {
                Some(colon) => (&self.line[..colon], &self.line[colon + 1..]),
                None => (&*self.line, &b""[..]),
            };
            if field != b"data" {
                continue;
            }
            let value = value.strip_prefix(b" ").unwrap_or(value);
            let data = match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data
                }
                None => data.insert(Vec::new()),
            };
            data.extend_from_slice(value);
            if data.len() > MOST {
                return Err(EventError::Long);
            }
        }
        Ok(None)
    }

    /// Reads a line without its end; `false` where none ends any more.
    fn read_line(&mut self) -> Result<bool, EventError> {
        self.line.clear();
        loop {
            let buffer = match self.body.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            let Some(first) = buffer.first() else {
                return Ok(false);
            };
            if std::mem::take(&mut self.is_behind_cr) && *first == b'\n' {
                self.body.consume(1);
                continue;
            }
            let end = buffer.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let taken = end.unwrap_or(buffer.len());
            self.line.extend_from_slice(&buffer[..taken]);
            self.is_behind_cr = end.is_some_and(|end| buffer[end] == b'\r');
            self.body.consume(taken + usize::from(end.is_some()));
            if self.line.len() > MOST {
                return Err(EventError::Long);
            }
            if end.is_some() {
                let mark = "\u{feff}".as_bytes();
                if std::mem::take(&mut self.is_first_line) && self.line.starts_with(mark) {
                    self.line.drain(..mark.len());
                }
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Read};

    fn all(body: impl BufRead) -> Vec<String> {
        let mut events = Events::new(body);
        let next = || events.next_data().unwrap();
        std::iter::from_fn(next)
            .map(|data| String::from_utf8(data).unwrap())
            .collect()
    }

    #[test]
    fn events_are_read_as_they_are_specified() {
        let body = "\u{feff}data: a\n\n: ping\n\nevent: x\ndata:b\ndata: \ndata:  c\n\nid: 3\n\ndata\n\ndatum: e\n\n\
                    data: [DONE]\n\ndata: cut\n";
        let said = ["a", "b\n\n c", "", "[DONE]"];
        for end in ["\n", "\r\n", "\r"] {
            let body = body.replace('\n', end);
            assert_eq!(all(body.as_bytes()), said, "{end:?}");
            // Wherever pieces of it end.
            for capacity in 1..5 {
                let pieces = BufReader::with_capacity(capacity, body.as_bytes());
                assert_eq!(all(pieces), said, "{end:?} by {capacity}");
            }
        }
    }

    #[test]
    fn an_event_that_ends_in_cr_waits_for_nothing() {
        /// Nothing comes after its bytes, but it does not end.
        struct Silent<'a>(&'a [u8]);

        impl Read for Silent<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "it would wait");
                self.0.read(buffer)
            }
        }

        let mut events = Events::new(BufReader::new(Silent(b"data: a\r\r")));
        assert_eq!(events.next_data().unwrap().unwrap(), b"a");
    }

    #[test]
    fn what_never_ends_is_given_up() {
        for beginning in ["data: ", "data: a\ndata: "] {
            let endless = beginning.as_bytes().chain(io::repeat(b'a'));
            let mut events = Events::new(BufReader::new(endless));
            assert!(matches!(events.next_data(), Err(EventError::Long)));
        }
        let lines = "data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
        let lines = lines.repeat(MOST / 60);
        let read = Events::new(lines.as_bytes()).next_data();
        assert!(matches!(read, Err(EventError::Long)));
    }
}
