//! How many files this process may have open, as each connection is one: raised when a server starts, as far as
//! the host lets it, and what of it connections may take. Knows no connection.

use anyhow::bail;

/// Files that are left for what is no connection: models while they are loaded, devices, threads of the runtime.
const KEPT: usize = 64;

/// Raises the limit as far as it goes; gives how many connections there may be at once, at most `wanted`, so that
/// one is never taken without a file for it. Says what it did in the log.
///
/// # Errors
/// The limit leaves no room for any.
pub fn connections(wanted: usize) -> anyhow::Result<usize> {
    let Some(limit) = limit::raise() else {
        return Ok(wanted);
    };
    let open = limit::num_open().unwrap_or(KEPT);
    let room = limit.now.saturating_sub(open + KEPT);
    let (before, now) = (limit.before, limit.now);
    match before == now {
        true => tracing::info!(now, "open files"),
        false => tracing::info!(before, now, "open files: the limit was raised"),
    }
    if room == 0 {
        bail!(
            "only {now} files may be open, which leaves none for connections: raise the limit (ulimit -n, or \
             LimitNOFILE of a unit) to {} or more",
            open + KEPT + wanted
        );
    }
    if room < wanted {
        tracing::warn!(
            wanted,
            connections = room,
            "connections are fewer than --max-connections: no more files may be open"
        );
    }
    Ok(wanted.min(room))
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

    /// What Apple's hosts take at most where they name no limit (`OPEN_MAX`).
    const MOST_IF_UNNAMED: libc::rlim_t = 10_240;

    /// Raises the soft limit to the hard one; `None` where the host does not say.
    pub(super) fn raise() -> Option<Limit> {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call writes one `rlimit`, which is there.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
            return None;
        }
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
        let number = |files: libc::rlim_t| usize::try_from(files).unwrap_or(usize::MAX);
        Some(Limit {
            before: number(before),
            now: number(limit.rlim_cur),
        })
    }

    /// Files that are open now.
    pub(super) fn num_open() -> Option<usize> {
        Some(std::fs::read_dir("/dev/fd").ok()?.count())
    }
}

#[cfg(not(unix))]
mod limit {
    use super::Limit;

    /// There is none that matters.
    pub(super) fn raise() -> Option<Limit> {
        None
    }

    pub(super) fn num_open() -> Option<usize> {
        None
    }
}
