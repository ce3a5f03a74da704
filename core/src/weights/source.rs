//! Where bytes come from: a file, a download, a browser's private file system. Knows no format.

use std::io;
use std::sync::Arc;

use super::WeightsError;

/// Random access to a fixed run of bytes. Reopenable, so that a lost device can be filled again.
///
/// `Send + Sync` because a native engine moves to its own thread after the file was opened; a
/// single-threaded host whose handles are bound to it keeps them in a thread-local table and gives
/// out the index.
pub trait ByteSource: Send + Sync {
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

impl<T: AsRef<[u8]> + Send + Sync> ByteSource for (String, T) {
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

/// The files of one model: a directory, an archive, a set of downloads. Reopenable.
pub trait ModelFiles {
    /// A name for error messages, such as the directory's.
    fn name(&self) -> &str;

    /// Opens a file by its plain name (no folders); `None` where there is no such file.
    ///
    /// # Errors
    /// Whatever the host reports.
    fn open(&self, file: &str) -> io::Result<Option<Arc<dyn ByteSource>>>;
}

/// Reads `bytes` bytes at `offset`, having checked them against the source's length first, so that
/// no more is allocated than there is to read.
pub(super) fn read_vec(
    source: &dyn ByteSource,
    offset: u64,
    bytes: u64,
    what: &str,
) -> Result<Vec<u8>, WeightsError> {
    let fail = |source_error: io::Error| WeightsError::Read {
        file: source.name().to_owned(),
        what: what.to_owned(),
        source: source_error,
    };
    let inside = offset
        .checked_add(bytes)
        .is_some_and(|end| end <= source.len());
    let (true, Ok(len)) = (inside, usize::try_from(bytes)) else {
        return Err(fail(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{bytes} bytes at {offset} are asked for, the file has {}",
                source.len()
            ),
        )));
    };
    let mut buf = vec![0; len];
    source.read_at(offset, &mut buf).map_err(fail)?;
    Ok(buf)
}

/// Reads a whole small file, refusing one over `most` bytes.
pub(super) fn read_all(source: &dyn ByteSource, most: u64) -> Result<Vec<u8>, WeightsError> {
    if source.len() > most {
        return Err(WeightsError::malformed(
            source.name(),
            "the file's length",
            source.len(),
            format!("at most {most} bytes are read of a file of this kind"),
        ));
    }
    read_vec(source, 0, source.len(), "the file")
}
