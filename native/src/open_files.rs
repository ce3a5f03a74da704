//! Files that this process has open, and how many it may, as each connection is one: raised when a server starts, as
//! far as the host lets it, and what of it connections may take. Knows no connection.

use anyhow::bail;

/// Files that are left for what is no connection: models while they are loaded, devices, threads of the runtime.
const KEPT: usize = 64;

/// Raises the limit as far as it goes, and says what it did in the log. It comes before everything that opens files,
/// of which some does not bear to get none.
///
/// # Errors
/// The limit leaves no room for `connections` at once, nor for any.
pub fn raise(connections: usize) -> anyhow::Result<()> {
    let Some(limit) = limit::raise() else {
        return Ok(());
    };
    let (before, now) = (limit.before, limit.now);
    match before == now {
        true => tracing::info!(limit = now, "files that may be open"),
        false => tracing::info!(
            before,
            limit = now,
            "files that may be open: more than at first"
        ),
    }
    room(now, connections).map(|_| ())
}

/// How many connections there may be at once beside what is open now, at most `wanted`, so that one is never taken
/// without a file for it.
///
/// # Errors
/// There is no room for any.
pub fn connections(wanted: usize) -> anyhow::Result<usize> {
    let Some(now) = most() else {
        return Ok(wanted);
    };
    let room = room(now, wanted)?;
    if room < wanted {
        tracing::warn!(
            wanted,
            connections = room,
            "connections are fewer than --max-connections: no more files may be open"
        );
    }
    Ok(wanted.min(room))
}

/// How many may be open; `None` where the host does not say, or has no limit.
pub fn most() -> Option<usize> {
    limit::now().filter(|now| *now != usize::MAX)
}

/// How many are open; `None` where the host does not say.
pub fn num_open() -> Option<usize> {
    let files = std::fs::read_dir(limit::FOLDER?).ok()?.count();
    // But for the folder itself.
    Some(files.saturating_sub(1))
}

/// Files that are left for connections, of which so many are wanted.
fn room(limit: usize, wanted: usize) -> anyhow::Result<usize> {
    let taken = KEPT + num_open().unwrap_or(KEPT);
    match limit.saturating_sub(taken) {
        0 => bail!(
            "only {limit} files may be open, which leaves none for connections: raise the limit (ulimit -n, or \
             LimitNOFILE of a unit) to {} or more",
            taken + wanted
        ),
        room => Ok(room),
    }
}

/// A limit of files before and after.
#[derive(Clone, Copy, Debug)]
struct Limit {
    before: usize,
    now: usize,
}

#[cfg(unix)]
#[allow(
    unsafe_code,
    reason = "the host's limits have no interface that is safe"
)]
mod limit {
    use super::Limit;

    /// Has a file for each that is open.
    pub(super) const FOLDER: Option<&str> = Some("/dev/fd");
    /// What Apple's hosts take at most where they name no limit (`OPEN_MAX`).
    const MOST_IF_UNNAMED: libc::rlim_t = 10_240;

    /// Raises the soft limit to the hard one; `None` where the host does not say.
    pub(super) fn raise() -> Option<Limit> {
        let mut limit = get()?;
        let before = limit.rlim_cur;
        for wanted in [limit.rlim_max, limit.rlim_max.min(MOST_IF_UNNAMED)] {
            if wanted <= limit.rlim_cur {
                break;
            }
            let raised = libc::rlimit {
                rlim_cur: wanted,
                ..limit
            };
            // SAFETY: the call reads one `rlimit`, which is there.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
                limit = raised;
            }
        }
        Some(Limit {
            before: number(before),
            now: number(limit.rlim_cur),
        })
    }

    /// The soft limit.
    pub(super) fn now() -> Option<usize> {
        get().map(|limit| number(limit.rlim_cur))
    }

    fn get() -> Option<libc::rlimit> {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call writes one `rlimit`, which is there.
        (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0).then_some(limit)
    }

    fn number(files: libc::rlim_t) -> usize {
        usize::try_from(files).unwrap_or(usize::MAX)
    }
}

#[cfg(not(unix))]
mod limit {
    use super::Limit;

    pub(super) const FOLDER: Option<&str> = None;

    /// There is none that matters.
    pub(super) fn raise() -> Option<Limit> {
        None
    }

    pub(super) fn now() -> Option<usize> {
        None
    }
}
