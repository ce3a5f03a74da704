//! Reads little-endian fields in order through a window over a [`ByteSource`]. Owns the rule that
//! nothing is allocated before it is known to be in the file.

use crate::weights::WeightsError;
use crate::weights::source::{ByteSource, read_vec};

/// Most bytes of a file that are taken for its head: the largest vocabularies and directories of
/// published files have some tens of megabytes, while a file with holes may seem to have any number.
const MAX_HEAD: u64 = 128 << 20;
/// Bytes fetched at a time.
const WINDOW: u64 = 64 << 10;

pub(super) struct Reader<'a> {
    source: &'a dyn ByteSource,
    window: Vec<u8>,
    /// Position of the window's first byte in the file.
    start: u64,
    /// Position of the next byte in the file.
    next: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a dyn ByteSource) -> Self {
        Self {
            source,
            window: Vec::new(),
            start: 0,
            next: 0,
        }
    }

    pub(super) fn file(&self) -> &'a str {
        self.source.name()
    }

    pub(super) fn position(&self) -> u64 {
        self.next
    }

    fn remaining(&self) -> u64 {
        self.source.len().min(MAX_HEAD).saturating_sub(self.next)
    }

    /// Checks that `count` items of at least `min_bytes` each can still follow.
    pub(super) fn expect_room(
        &self,
        count: u64,
        min_bytes: u64,
        field: &str,
    ) -> Result<(), WeightsError> {
        match count.checked_mul(min_bytes) {
            Some(bytes) if bytes <= self.remaining() => Ok(()),
            _ => Err(self.no_room(field, count)),
        }
    }

    /// That what should follow does not.
    fn no_room(&self, field: &str, found: impl ToString) -> WeightsError {
        WeightsError::malformed(
            self.file(),
            field,
            found,
            if self.source.len() > MAX_HEAD {
                format!("keys and tensors are described in the first {MAX_HEAD} bytes of a file")
            } else {
                let follow = self.remaining();
                format!("only {follow} bytes follow; the file is damaged or cut short")
            },
        )
    }

    /// The next `len` bytes as a slice of the window.
    fn take(&mut self, len: u64, field: &str) -> Result<&[u8], WeightsError> {
        if len > self.remaining() {
            return Err(self.no_room(field, format!("{len} bytes long")));
        }
        let end = self.next + len;
        if self.next < self.start || end > self.start + self.window.len() as u64 {
            let bytes = len.max(WINDOW).min(self.remaining());
            self.window = read_vec(self.source, self.next, bytes, field)?;
            self.start = self.next;
        }
        // Both are below the window's length, which is a `usize`.
        let from = (self.next - self.start) as usize;
        self.next = end;
        Ok(&self.window[from..from + len as usize])
    }

    pub(super) fn bytes<const N: usize>(&mut self, field: &str) -> Result<[u8; N], WeightsError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, field)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, field: &str) -> Result<u32, WeightsError> {
        self.bytes(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &str) -> Result<u64, WeightsError> {
        self.bytes(field).map(u64::from_le_bytes)
    }

    /// A length-prefixed UTF-8 string of at most `most` bytes.
    pub(super) fn string(&mut self, most: u64, field: &str) -> Result<String, WeightsError> {
        let file = self.file();
        let len = self.u64(field)?;
        if len > most {
            return Err(WeightsError::malformed(
                file,
                field,
                format!("a string of {len} bytes"),
                format!("at most {most} are taken"),
            ));
        }
        let bytes = self.take(len, field)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(WeightsError::malformed(
                file,
                field,
                format!("no UTF-8 ({e})"),
                "strings must be UTF-8",
            )),
        }
    }
}
