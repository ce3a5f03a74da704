//! Small files that this program writes for itself or for scripts: read only where they are files and
//! not too large, and written whole or not at all. Knows nothing of what they hold.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// A device, a pipe or a folder is nothing that a file may take the place of.
fn replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::other("it is no regular file")),
        _ => Ok(()),
    }
}

/// The bytes of a regular file of at most `most` bytes.
///
/// # Errors
/// It is not there, is something else (a pipe would wait for a writer), is larger, or cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Writes a file and the folders it lies in, whole or not at all, also when two programs write it at once.
///
/// # Errors
/// Something that is no regular file lies there; the folder's or the disk's. Nothing is left behind then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    replaceable(path)?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // The first failure is the one to tell.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Checks that [`write()`] would, and leaves everything as it is: long work should not end in a file that
/// cannot be written.
///
/// # Errors
/// As of [`write()`]; the folder must be there.
pub fn check(path: &Path) -> io::Result<()> {
    replaceable(path)?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    File::create(&part)?;
    fs::remove_file(&part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_files_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b.json");
        assert!(check(&path).is_err(), "no folder yet");
        write(&path, b"{}").expect("writes");
        check(&path).expect("can be written");
        assert_eq!(read(&path, 2).expect("reads"), b"{}");
        assert!(read(&path, 1).is_err());
        assert!(read(folder.path(), 9).is_err() && check(folder.path()).is_err());
        assert!(write(folder.path(), b"x").is_err());
        let left = fs::read_dir(path.parent().expect("a folder")).expect("lists");
        assert_eq!(left.count(), 1);
    }
}
