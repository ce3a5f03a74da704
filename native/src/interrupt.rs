//! Ctrl-C: the first one asks what is running to stop, a second one before it has stopped leaves
//! the program. Knows nothing of what is running.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);
static HEEDED: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// Exit status of a program ended by Ctrl-C, as shells have it.
pub const STATUS: u8 = 130;

/// Starts listening; where the host does not let it, Ctrl-C ends the program as always.
pub fn listen() {
    INSTALLED.get_or_init(|| {
        ctrlc::set_handler(|| {
            if ASKED.swap(true, Ordering::SeqCst) {
                std::process::exit(STATUS.into());
            }
        })
        .is_ok()
    });
}

/// Whether something is to stop. Forgets it, so that the next thing can run.
pub fn take() -> bool {
    ASKED.swap(false, Ordering::SeqCst)
}

/// The work of the whole program was stopped at somebody's wish.
pub fn heed() {
    HEEDED.store(true, Ordering::SeqCst);
}

/// Whether it was, for the exit status.
pub fn was_heeded() -> bool {
    HEEDED.load(Ordering::SeqCst)
}
