//! What a device reaches in bytes and in operations a second when it does nothing else: the roof under which
//! everything else runs. Knows no model.

use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::fma_rate::{self, FmaRateParams, LANES};
use twoclock_shaders::program::{Command, Slice};

use crate::keeping_executor::KeepingExecutor;

/// The two rates of a roofline (Williams et al. 2009).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes a second of a copy in device memory, those read and those written.
    pub copy: f64,
    /// Operations a second of multiply-adds in single precision, on registers.
    pub fma: f64,
}

impl Rates {
    /// Times both.
    ///
    /// # Errors
    /// The device's.
    pub fn measure<E: Executor>(executor: &mut KeepingExecutor<E>) -> Result<Self, ExecutorError> {
        Ok(Self {
            copy: copy(executor)?,
            fma: fma(executor)?,
        })
    }

    /// How near to the roof something runs that moves so many bytes and does so many operations a second: its
    /// share of whichever rate it has more of.
    pub fn share(&self, bytes_s: f64, flops: f64) -> f64 {
        (bytes_s / self.copy).max(flops / self.fma)
    }
}

/// Buffers of a copy: beyond the caches of a GPU, and small beside a model on a processor.
fn copied_bytes(caps: &Caps) -> u64 {
    let wanted = match caps.kind {
        DeviceKind::Cpu => 64 << 20,
        DeviceKind::Gpu => 512 << 20,
    };
    caps.max_buffer_bytes.min(wanted)
}

fn copy<E: Executor>(executor: &mut KeepingExecutor<E>) -> Result<f64, ExecutorError> {
    let bytes = copied_bytes(executor.caps());
    let [src, dst] = [
        executor.create_buffer("copied from", bytes)?,
        executor.create_buffer("copied to", bytes)?,
    ];
    // Pages that were never written need not be there.
    let mib = vec![0x55; 1 << 20];
    for at in (0..bytes / (1 << 20)).map(|mb| mb << 20) {
        executor.write(src, at, &mib)?;
    }
    let copy = Command::Copy {
        src: Slice::whole(src, bytes),
        dst: Slice::whole(dst, bytes),
    };
    let seconds = executor.time(&[copy], dst);
    executor.destroy_buffer(src);
    executor.destroy_buffer(dst);
    Ok(2.0 * bytes as f64 / seconds?)
}

fn fma<E: Executor>(executor: &mut KeepingExecutor<E>) -> Result<f64, ExecutorError> {
    let (groups, rounds) = match executor.caps().kind {
        DeviceKind::Cpu => (64, 4096),
        DeviceKind::Gpu => (8192, 4096),
    };
    let bytes = u64::from(4 * groups * LANES);
    let buffer = executor.create_buffer("sums", bytes)?;
    let dispatch = fma_rate::dispatch(FmaRateParams { rounds }, Slice::whole(buffer, bytes));
    let flops = f64::from(groups) * dispatch.cost.flops;
    let seconds = executor.time(&[dispatch.into()], buffer);
    executor.destroy_buffer(buffer);
    Ok(flops / seconds?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_nearer_rate() {
        let rates = Rates {
            copy: 100.0,
            fma: 1000.0,
        };
        assert_eq!(rates.share(50.0, 100.0), 0.5);
        assert_eq!(rates.share(10.0, 900.0), 0.9);
    }
}
