//! Where bytes come from: a file, a download, a browser's private file system. Knows no format.

use std::io;

/// Random access to a fixed run of bytes. Reopenable, so that a lost device can be filled again.
pub trait ByteSource {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A name for error messages: a file name, never a whole path with secrets.
    fn name(&self) -> &str;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end; whatever the host reports otherwise.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl<T: AsRef<[u8]>> ByteSource for (String, T) {
    fn len(&self) -> u64 {
        self.1.as_ref().len() as u64
    }

    fn name(&self) -> &str {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let src = start
            .checked_add(buf.len())
            .and_then(|end| self.1.as_ref().get(start..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(src);
        Ok(())
    }
}
