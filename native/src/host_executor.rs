//! The executor this machine offers: one of its adapters, or the reference kernels. Owns the choice
//! and the driver's pipeline cache on disk; knows no model.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;

use pollster::block_on;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::gpu::{Counters, DeviceOptions, GpuDevice, WgpuExecutor, adapters};
use twoclock_shaders::program::{BufferId, Program, StepArgs};

use crate::kept_tuning;
use crate::whole_file;

/// What `--device` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best adapter.
    #[default]
    Best,
    /// The adapter of that number in `twoclock devices`.
    Adapter(usize),
    /// The reference kernels.
    Cpu,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            number => number
                .parse()
                .map(Self::Adapter)
                .map_err(|_| "expected a number of `twoclock devices`, or cpu".into()),
        }
    }
}

/// More bytes are no pipeline cache.
const MOST_PIPELINES: u64 = 256 << 20;

/// What of the driver's pipeline cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipelines {
    /// What it compiled in earlier runs, and this one's is kept.
    Kept,
    /// Nothing: all is compiled.
    Fresh,
}

/// An executor of this machine.
#[derive(Debug)]
pub enum HostExecutor {
    /// An adapter, and where its pipeline cache is kept.
    Gpu(Box<WgpuExecutor>, Option<PathBuf>),
    /// The reference kernels.
    Cpu(CpuExecutor),
}

impl HostExecutor {
    /// Opens the chosen device, tuned as `tune` kept it in `caches`.
    ///
    /// # Errors
    /// [`ExecutorError::NoDevice`].
    pub fn open(
        choice: DeviceChoice,
        caches: &Path,
        pipelines: Pipelines,
    ) -> Result<Self, ExecutorError> {
        let adapter = match choice {
            DeviceChoice::Cpu => return Ok(Self::Cpu(CpuExecutor::default())),
            DeviceChoice::Best => 0,
            DeviceChoice::Adapter(number) => number,
        };
        let found = block_on(adapters());
        let found = found.get(adapter);
        let cache = found
            .filter(|_| pipelines == Pipelines::Kept)
            .map(|adapter| caches.join(format!("{}.pipelines", adapter.cache_key)));
        let options = DeviceOptions {
            adapter: Some(adapter).filter(|_| choice != DeviceChoice::Best),
            // A cache that cannot be read is made anew.
            pipeline_cache: cache
                .as_ref()
                .and_then(|path| whole_file::read(path, MOST_PIPELINES).ok()),
            tuning: found.map(|adapter| kept_tuning::of(caches, adapter)),
        };
        let device = block_on(GpuDevice::open(options))?;
        Ok(Self::Gpu(Box::new(WgpuExecutor::new(device)), cache))
    }

    /// Whether a request's tokens are promised to the bit however it is served; else up to where two are
    /// nearly as likely.
    pub fn same_bits(&self) -> bool {
        match self {
            Self::Gpu(gpu, _) => gpu.device().summary.same_bits(),
            Self::Cpu(_) => true,
        }
    }

    /// What tells its adapter and driver from others; `None` for the reference kernels.
    pub fn adapter_key(&self) -> Option<&str> {
        match self {
            Self::Gpu(gpu, _) => Some(&gpu.device().summary.cache_key),
            Self::Cpu(_) => None,
        }
    }

    /// What it counted; the reference kernels count nothing.
    pub fn counters(&self) -> Option<Counters> {
        match self {
            Self::Gpu(gpu, _) => Some(gpu.counters()),
            Self::Cpu(_) => None,
        }
    }

    /// Bytes of its buffers.
    pub fn buffer_bytes(&self) -> u64 {
        match self {
            Self::Gpu(gpu, _) => gpu.buffer_bytes(),
            Self::Cpu(cpu) => cpu.buffer_bytes(),
        }
    }

    /// Keeps what the driver compiled for the next run. A cache that cannot be written costs only
    /// time.
    pub fn save_pipelines(&self) {
        let Self::Gpu(gpu, Some(path)) = self else {
            return;
        };
        let Some(data) = gpu.device().pipeline_cache() else {
            return;
        };
        if whole_file::read(path, MOST_PIPELINES).is_ok_and(|old| old == data) {
            return;
        }
        if let Err(e) = whole_file::write(path, &data) {
            tracing::warn!("the pipeline cache was not written: {e}");
        }
    }
}

impl fmt::Display for HostExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(gpu, _) => {
                let summary = &gpu.device().summary;
                write!(
                    f,
                    "{} ({}, {})",
                    summary.name, summary.kind, summary.backend
                )
            }
            Self::Cpu(_) => f.write_str("the reference kernels on the processor"),
        }
    }
}

type ReadBack = Pin<Box<dyn Future<Output = Result<Vec<u8>, ExecutorError>>>>;

impl Executor for HostExecutor {
    fn caps(&self) -> &Caps {
        match self {
            Self::Gpu(gpu, _) => gpu.caps(),
            Self::Cpu(cpu) => cpu.caps(),
        }
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        match self {
            Self::Gpu(gpu, _) => gpu.create_buffer(label, bytes),
            Self::Cpu(cpu) => cpu.create_buffer(label, bytes),
        }
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        match self {
            Self::Gpu(gpu, _) => gpu.destroy_buffer(buffer),
            Self::Cpu(cpu) => cpu.destroy_buffer(buffer),
        }
    }

    fn release(&mut self) {
        match self {
            Self::Gpu(gpu, _) => gpu.release(),
            Self::Cpu(cpu) => cpu.release(),
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        match self {
            Self::Gpu(gpu, _) => gpu.write(buffer, offset, data),
            Self::Cpu(cpu) => cpu.write(buffer, offset, data),
        }
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        match self {
            Self::Gpu(gpu, _) => gpu.launch(program, args),
            Self::Cpu(cpu) => cpu.launch(program, args),
        }
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let back: ReadBack = match self {
            Self::Gpu(gpu, _) => Box::pin(gpu.read(buffer, range)),
            Self::Cpu(cpu) => Box::pin(cpu.read(buffer, range)),
        };
        back
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let back: ReadBack = match self {
            Self::Gpu(gpu, _) => Box::pin(gpu.read_with_next(buffer, range)),
            Self::Cpu(cpu) => Box::pin(cpu.read_with_next(buffer, range)),
        };
        back
    }
}
