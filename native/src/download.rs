//! One file over HTTP onto the disk: goes on from where an earlier attempt was cut (RFC 9110 §14),
//! and gives out nothing that has not the length and SHA-256 it must have. Knows no index and no
//! model.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use thiserror::Error;
use url::Url;

use crate::http::{Credentials, Http, HttpError, host};
use crate::report::Reporter;

/// Attempts in a row that may bring not a single byte.
const MAX_IDLE_ATTEMPTS: u32 = 3;

/// What to download.
#[derive(Debug)]
pub struct Source<'a> {
    /// Where it lies.
    pub url: &'a Url,
    /// Sent to their own origin only.
    pub credentials: Option<&'a Credentials>,
    /// Length in bytes, if known.
    pub bytes: Option<u64>,
    /// SHA-256 in lower-case hexadecimal, if known.
    pub sha256: Option<&'a str>,
    /// Never write more than this many bytes.
    pub limit: u64,
}

/// Why a download failed.
#[derive(Debug, Error)]
pub enum DownloadError {
    /// The server did not answer.
    #[error(
        "the download was cut ({0}); what came so far is kept, run the same command again to go on from there"
    )]
    Http(#[from] HttpError),
    /// The connection broke again and again.
    #[error(
        "the download from {host} was cut at {at} bytes; what came so far is kept, run the same command again to go on from there"
    )]
    Cut {
        /// Host of the server.
        host: String,
        /// Bytes on the disk.
        at: u64,
    },
    /// The server answered with an error.
    #[error(
        "{host} answered with status {status} instead of the file: run the same command again later"
    )]
    Status {
        /// Host of the server.
        host: String,
        /// HTTP status.
        status: u16,
    },
    /// More came than the file may have.
    #[error("{host} sent more than the {limit} bytes the file may have; it was deleted")]
    TooLong {
        /// Host of the server.
        host: String,
        /// Most bytes allowed.
        limit: u64,
    },
    /// What came is not the file.
    #[error(
        "{what} has SHA-256 {found}, and it must be {expected}; it was deleted. If it happens again, the server or a proxy on the way sends another file"
    )]
    Sha256 {
        /// Which file.
        what: String,
        /// What came.
        found: String,
        /// What was announced.
        expected: String,
    },
    /// The disk refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
}

/// Brings `source` to `part` and checks it. On success `part` is the whole, right file; after a cut
/// it holds what came so far; after a mismatch it is gone.
///
/// # Errors
/// The server fails or sends something else, or the disk refuses.
pub fn download(
    http: &Http,
    source: &Source<'_>,
    part: &Path,
    report: &Reporter,
) -> Result<(), DownloadError> {
    let io = |source| DownloadError::Io {
        path: part.to_owned(),
        source,
    };
    let limit = source.bytes.unwrap_or(source.limit).min(source.limit);
    let bar = report.bar("downloading", source.bytes);
    let mut idle = 0;
    loop {
        let there = fs::metadata(part).ok().map(|meta| meta.len());
        // An empty file is there only once it was asked for.
        if there.is_some() && source.bytes == there {
            break;
        }
        let have = there.unwrap_or(0);
        bar.set_position(have);
        let outcome = attempt(http, source, part, have, limit, &bar);
        let now = fs::metadata(part).map_or(0, |meta| meta.len());
        match outcome {
            Ok(()) if source.bytes.is_none_or(|bytes| bytes == now) => break,
            Ok(()) => report.detail(&format!("the connection ended at {now} bytes")),
            Err(Failed::Transient(e)) if idle + 1 >= MAX_IDLE_ATTEMPTS && now <= have => {
                return Err(e);
            }
            Err(Failed::Transient(e)) => report.detail(&e.to_string()),
            Err(Failed::Final(e)) => {
                if matches!(e, DownloadError::TooLong { .. }) {
                    fs::remove_file(part).map_err(io)?;
                }
                return Err(e);
            }
        }
        if now > have {
            idle = 0;
        } else {
            idle += 1;
            if idle >= MAX_IDLE_ATTEMPTS {
                return Err(DownloadError::Cut {
                    host: host(source.url),
                    at: now,
                });
            }
        }
        report.detail(&format!("asking again, from byte {now}"));
        std::thread::sleep(Duration::from_millis(300 << idle));
    }
    bar.finish_and_clear();
    let Some(expected) = source.sha256 else {
        return Ok(());
    };
    let found = sha256_of(&mut File::open(part).map_err(io)?).map_err(io)?;
    if found == expected {
        return Ok(());
    }
    fs::remove_file(part).map_err(io)?;
    Err(DownloadError::Sha256 {
        what: format!("the file from {}", host(source.url)),
        found,
        expected: expected.to_owned(),
    })
}

/// How an attempt ended badly.
enum Failed {
    /// Another one may do better.
    Transient(DownloadError),
    /// It may not.
    Final(DownloadError),
}

/// Asks once, from byte `have` on, and writes what comes.
fn attempt(
    http: &Http,
    source: &Source<'_>,
    part: &Path,
    have: u64,
    limit: u64,
    bar: &indicatif::ProgressBar,
) -> Result<(), Failed> {
    let io = |source| {
        Failed::Final(DownloadError::Io {
            path: part.to_owned(),
            source,
        })
    };
    let mut headers = Vec::new();
    if have > 0 {
        headers.push(("Range", format!("bytes={have}-")));
    }
    let response = http
        .get(source.url, &headers, source.credentials)
        .map_err(|e| {
            let transient = e.is_transient();
            let e = DownloadError::Http(e);
            if transient {
                Failed::Transient(e)
            } else {
                Failed::Final(e)
            }
        })?;
    let status = response.status().as_u16();
    let start = match status {
        // The server knows no ranges: from the start.
        200 => 0,
        206 if range_start(&response) == Some(have) => have,
        // 416: the part is longer than the file; a 206 of another range is of no use either.
        206 | 416 if have > 0 => {
            fs::remove_file(part).map_err(io)?;
            return Ok(());
        }
        _ => {
            let e = DownloadError::Status {
                host: host(source.url),
                status,
            };
            return Err(if matches!(status, 408 | 429 | 500..) {
                Failed::Transient(e)
            } else {
                Failed::Final(e)
            });
        }
    };
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(start == 0)
        .append(start != 0)
        .write(true)
        .open(part)
        .map_err(io)?;
    bar.set_position(start);
    let mut at = start;
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) => {
                return Err(Failed::Transient(DownloadError::Cut {
                    host: host(source.url),
                    at,
                }));
            }
        };
        at += count as u64;
        if at > limit {
            return Err(Failed::Final(DownloadError::TooLong {
                host: host(source.url),
                limit,
            }));
        }
        file.write_all(&buffer[..count]).map_err(io)?;
        bar.inc(count as u64);
    }
    file.sync_all().map_err(io)
}

/// First byte of a `Content-Range: bytes FIRST-LAST/LENGTH`.
fn range_start(response: &ureq::http::Response<ureq::Body>) -> Option<u64> {
    let value = response.headers().get("content-range")?.to_str().ok()?;
    let (first, _) = value.strip_prefix("bytes ")?.split_once('-')?;
    first.trim().parse().ok()
}

/// SHA-256 of everything `reader` gives, in lower-case hexadecimal.
///
/// # Errors
/// Whatever the reader reports.
pub fn sha256_of(reader: &mut impl Read) -> io::Result<String> {
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            return Ok(hexadecimal(&sha256.finalize()));
        }
        sha256.update(&buffer[..count]);
    }
}

/// Lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
