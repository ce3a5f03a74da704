//! What the process's allocator keeps of memory that was freed. The C library of most Linux hosts keeps the pages
//! between those that are in use, where a long body or a model was, until it is told. Knows not what had it; others say
//! when it was much, so that nobody pays for looking where nothing was.

use std::sync::atomic::{AtomicU8, Ordering};

/// Looks that find something. Whoever frees much may say so before the last of it is free, which the second look finds.
const LOOKS: u8 = 2;

/// How many of them are left. The heap is the process's, whoever serves in it.
static LEFT: AtomicU8 = AtomicU8::new(0);

/// Bytes that may be free at the end of a heap. Said once, it stays, and so does the size from which blocks are mapped by
/// themselves: the C library raises both when large blocks are freed. Of storms of refused bodies, 20 at a time, 147 MiB
/// stayed without it, and 3 MiB stay with it.
const KEPT_AT_THE_END: i32 = 128 << 10;

/// Has the allocator keep little. To be called once, before much is held.
pub fn keep_little() {
    limit();
}

/// Says that much is free now, or is about to be.
pub fn freed_much() {
    LEFT.store(LOOKS, Ordering::Relaxed);
}

/// Whether somebody said so, and what is free is still to be given back.
pub fn is_due() -> bool {
    LEFT.load(Ordering::Relaxed) > 0
}

/// Gives what is free back to the host if that is due; says whether it did. May take milliseconds for each hundred MiB.
pub fn give_back() -> bool {
    let looks = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    looks.is_ok() && trim()
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the C library's allocator has no interface that is safe"
)]
fn trim() -> bool {
    // SAFETY: touches only pages that nobody has; others may allocate and free meanwhile.
    unsafe { libc::malloc_trim(0) != 0 }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "as above")]
fn limit() {
    // SAFETY: changes a number that the allocator reads under its own locks.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_THE_END) };
}

/// Other allocators have no such number.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn limit() {}

/// Other allocators give back what they do by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() -> bool {
    false
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;
    use crate::process::Process;

    fn resident_mib() -> u64 {
        Process::now().resident_bytes.expect("Linux tells it") >> 20
    }

    /// Small ones, as a long body's are, between which something stays.
    #[test]
    fn what_was_freed_goes_back() {
        let many = 1 << 20;
        let mut pieces: Vec<Box<[u8; 96]>> = (0..many).map(|n| Box::new([n as u8; 96])).collect();
        let stays = pieces.pop();
        let before = resident_mib();
        drop(pieces);
        freed_much();
        assert!(give_back());
        let after = resident_mib();
        // Other tests of this process take and give some meanwhile.
        assert!(after + 40 < before, "{before} MiB, then {after}");
        drop(stays);
    }
}
