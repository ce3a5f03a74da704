//! How much memory a model may take, and how much this process took. Graphics APIs do not tell what is free, so a budget is either
//! given or, for devices that are the processor, read from the host.

use twoclock_shaders::caps::{Caps, DeviceKind};

/// Bytes of the host's memory that can be taken now; `None` where it cannot be asked.
fn host_available() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
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
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
