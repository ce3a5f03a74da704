//! How much memory a piece of work takes at its peak. Only for tests that are alone in their process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counting bytes in use and their peak.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "the allocator's interface is unsafe")]
// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(
            USED.fetch_add(layout.size(), Relaxed) + layout.size(),
            Relaxed,
        );
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f` and checks that it took at most `most` bytes beyond those in use.
pub(crate) fn bounded<T>(most: usize, f: impl FnOnce() -> T) -> T {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let out = f();
    let taken = PEAK.load(Relaxed) - before;
    assert!(
        taken <= most,
        "{taken} bytes were allocated, {most} are allowed"
    );
    out
}
