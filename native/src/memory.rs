//! How much memory a model may take, and how much this process took. Graphics APIs do not tell what is free, so
//! a budget is either given or, for devices that are the processor, read from the host.

use twoclock_shaders::caps::{Caps, DeviceKind};

/// Bytes that a file of Linux gives under a name; `None` where there is none.
fn bytes_in(file: &str, name: &str) -> Option<u64> {
    bytes_of(&std::fs::read_to_string(file).ok()?, name)
}

/// Bytes that a text gives under a name, as `NAME: N kB`, one a line.
pub(crate) fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line
        .strip_prefix(':')?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

/// Bytes of the host's memory that can be taken now; `None` where it cannot be asked.
fn host_available() -> Option<u64> {
    bytes_in("/proc/meminfo", "MemAvailable")
}

/// Bytes a model may take on this device: what was asked for, else what is known.
pub fn budget(caps: &Caps, asked_mib: Option<u64>) -> Option<u64> {
    match (asked_mib, caps.kind) {
        (Some(mib), _) => Some(mib.saturating_mul(1 << 20)),
        (None, DeviceKind::Cpu) => host_available(),
        (None, DeviceKind::Gpu) => None,
    }
}

/// Most memory the process held so far; `None` where the system does not say.
pub fn peak_rss() -> Option<u64> {
    bytes_in("/proc/self/status", "VmHWM")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_host_tells_both() {
        let (peak, free) = (peak_rss().unwrap(), host_available().unwrap());
        assert!((1 << 20..1 << 40).contains(&peak), "{peak}");
        assert!((1 << 20..1 << 50).contains(&free), "{free}");
        assert_eq!(bytes_in("/proc/meminfo", "Nothing"), None);
        assert_eq!(bytes_in("/nowhere", "MemAvailable"), None);
    }
}
