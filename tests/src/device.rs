//! The device under test, for every test of a process.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use twoclock_shaders::gpu::{DeviceOptions, GpuDevice, WgpuExecutor};

/// How often the adapter is opened at most: a software driver compiles on one core for each.
const OPENED: usize = 2;

/// Tests that use each.
static USERS: Mutex<[usize; OPENED]> = Mutex::new([0; OPENED]);

/// The device of a test's thread, the one that fewest others use.
struct Claim(usize);

impl Claim {
    fn new() -> Self {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let least = (0..OPENED).min_by_key(|&i| users[i]).unwrap_or(0);
        users[least] += 1;
        Self(least)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        USERS.lock().unwrap_or_else(PoisonError::into_inner)[self.0] -= 1;
    }
}

thread_local! {
    static CLAIM: Claim = Claim::new();
}

/// The device under test: the best adapter there is. A thread gets the same one every time; several may share
/// it, one at a time.
///
/// # Panics
/// When there is none: these tests are about a device, software Vulkan included.
pub fn gpu() -> MutexGuard<'static, WgpuExecutor> {
    static DEVICES: [OnceLock<Mutex<WgpuExecutor>>; OPENED] = [const { OnceLock::new() }; OPENED];
    DEVICES[CLAIM.with(|claim| claim.0)]
        .get_or_init(|| {
            let device = pollster::block_on(GpuDevice::open(DeviceOptions::default()))
                .expect("a Vulkan device; tests/run.sh installs a software one");
            Mutex::new(WgpuExecutor::new(device))
        })
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
