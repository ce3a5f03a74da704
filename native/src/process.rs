//! What the host says of this process: memory, time, files, threads. Knows no format they are told in. Where the host
//! is not Linux it says files at most.

use std::sync::OnceLock;

use crate::memory::bytes_of;
use crate::open_files;

/// A process as it is now; what the host does not say is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Memory it has that is not swapped out, bytes.
    pub resident_bytes: Option<u64>,
    /// Addresses it has taken, bytes.
    pub virtual_bytes: Option<u64>,
    /// Time of processors it took, seconds.
    pub cpu_seconds: Option<f64>,
    /// When it began, seconds of the epoch.
    pub started: Option<f64>,
    /// Its threads.
    pub threads: Option<u64>,
    /// Files it has open.
    pub open_fds: Option<u64>,
    /// Files it may have open.
    pub max_fds: Option<u64>,
}

impl Process {
    /// This process: reads files of the host, and so blocks.
    pub fn now() -> Self {
        let stat = read("/proc/self/stat");
        let times = stat.as_deref().and_then(Times::of).unwrap_or_default();
        let status = read("/proc/self/status");
        let bytes = |name| bytes_of(status.as_deref()?, name);
        let count = |count: Option<usize>| count.map(|count| count as u64);
        Self {
            resident_bytes: bytes("VmRSS"),
            virtual_bytes: bytes("VmSize"),
            cpu_seconds: times.cpu.and_then(seconds),
            started: started(&times),
            threads: times.threads,
            open_fds: count(open_files::num_open()),
            max_fds: count(open_files::most()),
        }
    }
}

/// When it began, seconds of the epoch: found out once.
fn started(times: &Times) -> Option<f64> {
    static STARTED: OnceLock<f64> = OnceLock::new();
    if let Some(started) = STARTED.get() {
        return Some(*started);
    }
    let booted = read("/proc/stat").and_then(|text| word_after(&text, "btime"))?;
    let started = booted as f64 + seconds(times.started?)?;
    Some(*STARTED.get_or_init(|| started))
}

fn seconds(ticks: u64) -> Option<f64> {
    Some(ticks as f64 / ticks_per_second()?)
}

/// What `/proc/PID/stat` has, in ticks of the host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    cpu: Option<u64>,
    threads: Option<u64>,
    started: Option<u64>,
}

impl Times {
    fn of(stat: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let rest: Vec<&str> = rest.split_whitespace().collect();
        // By their numbers in proc_pid_stat(5); the first here is the third.
        let field = |number: usize| rest.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: field(14).zip(field(15)).map(|(user, system)| user + system),
            threads: field(20),
            started: field(22),
        })
    }
}

/// The number behind these words at the beginning of a line.
fn word_after(text: &str, words: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(words))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(file).ok()
}

#[cfg(unix)]
#[allow(
    unsafe_code,
    reason = "the host's settings have no interface that is safe"
)]
fn ticks_per_second() -> Option<f64> {
    // SAFETY: asks for a number; touches no memory.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (ticks > 0).then_some(ticks as f64)
}

#[cfg(not(unix))]
fn ticks_per_second() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 9 18 1234 20 21";
        let times = Times {
            cpu: Some(300),
            threads: Some(9),
            started: Some(1234),
        };
        assert_eq!(Times::of(stat), Some(times));
        assert_eq!(Times::of("7 (a) S 1"), Some(Times::default()));
        assert_eq!(Times::of(""), None);
        let host = "cpu  1 2\nbtime 1796000000\nprocesses\n";
        assert_eq!(word_after(host, "btime"), Some(1_796_000_000));
        assert_eq!(word_after(host, "processes"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_host_says_all_of_it() {
        let before = Process::now();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let process = Process::now();
        drop(file);
        let (resident, taken) = (
            process.resident_bytes.unwrap(),
            process.virtual_bytes.unwrap(),
        );
        assert!((1 << 20..taken).contains(&resident), "{process:?}");
        assert!(process.cpu_seconds >= before.cpu_seconds && before.cpu_seconds >= Some(0.0));
        assert!(process.threads >= Some(1), "{process:?}");
        assert!(
            process.open_fds >= Some(4) && process.max_fds.is_none_or(|max| max > 4),
            "{process:?}"
        );
        assert_eq!(process.started, before.started);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.unwrap().as_secs_f64() - process.started.unwrap();
        // The host tells when it began to the second.
        assert!((-2.0..86400.0).contains(&age), "{age}");
    }
}
