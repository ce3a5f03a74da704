//! Adapters and devices: listing, choosing, opening, and noticing that one is gone. Owns the error
//! channels of wgpu and turns them into this crate's errors.

use crate::caps::{Caps, Coop, DeviceKind, Dialect};
use crate::executor::ExecutorError;
use crate::tuning::Tuning;
use std::sync::{Arc, Mutex, PoisonError};

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Index into [`adapters`]; the first (best) one where absent.
    pub adapter: Option<usize>,
    /// What an earlier [`GpuDevice::pipeline_cache`] gave for the same adapter and driver.
    pub pipeline_cache: Option<Vec<u8>>,
    /// What was measured of the adapter; without it [`Caps::usual_tuning`].
    pub tuning: Option<Tuning>,
}

/// What an adapter says of itself.
#[derive(Clone, Debug)]
pub struct AdapterSummary {
    /// Its name.
    pub name: String,
    /// Driver and version.
    pub driver: String,
    /// Graphics API.
    pub backend: &'static str,
    /// Kind of device, for people: `discrete GPU`, `software` …
    pub kind: &'static str,
    /// What it can do.
    pub caps: Caps,
    /// File-name-safe key of adapter and driver version: what a pipeline cache belongs to.
    pub cache_key: String,
}

/// What went wrong out of band, kept until somebody asks.
#[derive(Debug, Default)]
struct Faults {
    lost: Option<String>,
    error: Option<ExecutorError>,
}

/// An open device.
#[derive(Debug)]
pub struct GpuDevice {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) cache: Option<wgpu::PipelineCache>,
    /// What it says of itself.
    pub summary: AdapterSummary,
    faults: Arc<Mutex<Faults>>,
}

fn instance() -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::PRIMARY,
        // Without validation of indirect calls, which costs a dispatch each and caps buffers.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

#[cfg(not(target_arch = "wasm32"))]
async fn found() -> Vec<wgpu::Adapter> {
    let mut found = instance().enumerate_adapters(wgpu::Backends::PRIMARY).await;
    // Best first; the order within a kind is the driver's.
    found.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::VirtualGpu => 1,
        wgpu::DeviceType::IntegratedGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    found
}

#[cfg(target_arch = "wasm32")]
async fn found() -> Vec<wgpu::Adapter> {
    let options = wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..Default::default()
    };
    instance()
        .request_adapter(&options)
        .await
        .into_iter()
        .collect()
}

/// Every adapter, best first: discrete, virtual, integrated, other, software.
pub async fn adapters() -> Vec<AdapterSummary> {
    found().await.iter().map(summary).collect()
}

fn summary(adapter: &wgpu::Adapter) -> AdapterSummary {
    let info = adapter.get_info();
    let limits = adapter.limits();
    let features = adapter.features();
    let safe = |text: &str| -> String {
        text.chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect()
    };
    let mut summary = AdapterSummary {
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        backend: info.backend.to_str(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete GPU",
            wgpu::DeviceType::VirtualGpu => "virtual GPU",
            wgpu::DeviceType::IntegratedGpu => "integrated GPU",
            wgpu::DeviceType::Cpu => "software",
            wgpu::DeviceType::Other => "other",
        },
        cache_key: format!(
            "{}-{:04x}-{:04x}-{}-{}",
            info.backend.to_str(),
            info.vendor,
            info.device,
            safe(&info.name),
            safe(&info.driver_info)
        ),
        name: info.name,
        caps: Caps {
            // A browser does not always say; a fallback adapter is a processor.
            kind: if info.device_type == wgpu::DeviceType::Cpu {
                DeviceKind::Cpu
            } else {
                DeviceKind::Gpu
            },
            dialect: if cfg!(target_arch = "wasm32") {
                Dialect::Browser
            } else {
                Dialect::Native
            },
            shader_f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: features
                .contains(wgpu::Features::SUBGROUP)
                .then_some((info.subgroup_min_size, info.subgroup_max_size)),
            coop: coop(adapter),
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            max_buffer_bytes: limits.max_buffer_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_workgroups: limits.max_compute_workgroups_per_dimension,
            binding_alignment: u64::from(limits.min_storage_buffer_offset_alignment)
                .max(u64::from(limits.min_uniform_buffer_offset_alignment)),
            tuning: Tuning::default(),
        },
    };
    summary.caps.tuning = summary.caps.usual_tuning();
    summary
}

impl AdapterSummary {
    /// Whether programs give the same bits on it whatever the batch and the chunk: where the graphics API's
    /// compilers neither reorder nor contract what kernels write down. Vulkan's must not; Metal's fast math
    /// and DX12's `mad` may. Elsewhere tokens are the same up to where two are nearly as likely.
    pub fn same_bits(&self) -> bool {
        self.backend == wgpu::Backend::Vulkan.to_str()
    }
}

/// What of cooperative matrices kernels can use: 16 × 16 × 16 halves with sums in singles, in
/// subgroups of one known size.
fn coop(adapter: &wgpu::Adapter) -> Option<Coop> {
    let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SHADER_F16;
    let info = adapter.get_info();
    let subgroup = info.subgroup_min_size;
    // A workgroup of four subgroups must stay within what every device allows.
    let known = subgroup == info.subgroup_max_size && (16..=64).contains(&subgroup);
    let memory = adapter.limits().max_compute_workgroup_storage_size;
    let fits = memory >= Coop::WORKGROUP_BYTES;
    let offered = adapter.features().contains(needed)
        && adapter.cooperative_matrix_properties().iter().any(|p| {
            use wgpu::CooperativeScalarType::{F16, F32};
            [p.m_size, p.n_size, p.k_size] == [16; 3] && (p.ab_type, p.cr_type) == (F16, F32)
        });
    (known && fits && offered).then_some(Coop { subgroup })
}

impl GpuDevice {
    /// Opens an adapter with all its limits.
    ///
    /// # Errors
    /// [`ExecutorError::NoDevice`] when there is no such adapter or it refuses.
    pub async fn open(options: DeviceOptions) -> Result<Self, ExecutorError> {
        let found = found().await;
        let wanted = options.adapter.unwrap_or(0);
        let adapter = found.get(wanted).ok_or_else(|| {
            ExecutorError::NoDevice(match (found.len(), options.adapter) {
                (0, _) => "no Vulkan, Metal, DX12 or WebGPU adapter was found; install a graphics driver (or Mesa's software driver to try things out)".into(),
                (1, _) => format!("there is no device {wanted}, only device 0"),
                (n, _) => format!("there is no device {wanted}, only devices 0 to {}", n - 1),
            })
        })?;
        let mut summary = summary(adapter);
        summary.caps.tuning = options.tuning.unwrap_or(summary.caps.tuning);
        let mut wanted = wgpu::Features::SHADER_F16
            | wgpu::Features::SUBGROUP
            | wgpu::Features::TIMESTAMP_QUERY
            | wgpu::Features::PIPELINE_CACHE;
        if summary.caps.coop.is_some() {
            wanted |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("twoclock"),
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            experimental_features: experimental(&summary.caps),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = adapter
            .request_device(&descriptor)
            .await
            .map_err(|e| ExecutorError::NoDevice(format!("{}: {e}", summary.name)))?;

        let faults = Arc::new(Mutex::new(Faults::default()));
        let lost = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            let mut faults = lost.lock().unwrap_or_else(PoisonError::into_inner);
            faults.lost = Some(format!("{reason:?}: {message}"));
        });
        let errors = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let mut faults = errors.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::debug!("{error}");
            faults.error.get_or_insert(match error {
                wgpu::Error::OutOfMemory { .. } => ExecutorError::OutOfMemory {
                    label: "a buffer".into(),
                    bytes: 0,
                },
                error => ExecutorError::Invalid(error.to_string()),
            });
        }));
        let cache = pipeline_cache(&device, options.pipeline_cache.as_deref());
        Ok(Self {
            device,
            queue,
            cache,
            summary,
            faults,
        })
    }

    /// What the driver compiled so far, to be handed to the next [`GpuDevice::open`]; `None` where
    /// it keeps no such cache.
    pub fn pipeline_cache(&self) -> Option<Vec<u8>> {
        self.cache.as_ref()?.get_data()
    }

    /// Whether the device is gone, and why.
    pub fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    /// Destroys the device, as a driver reset would; for tests of what follows.
    pub fn destroy(&self) {
        self.device.destroy();
    }

    /// The first fault since the last call.
    pub(super) fn check(&self) -> Result<(), ExecutorError> {
        let Some(error) = self.fault() else {
            return Ok(());
        };
        // What follows a loss looks like invalid objects until the loss itself is told, which
        // happens in a poll, once nothing is in flight any more.
        let polled = self.device.poll(wgpu::PollType::wait_indefinitely());
        match (self.lost(), polled) {
            (Some(lost), _) => Err(ExecutorError::DeviceLost(lost)),
            (None, Err(e)) => Err(ExecutorError::DeviceLost(e.to_string())),
            (None, Ok(_)) => Err(error),
        }
    }

    fn fault(&self) -> Option<ExecutorError> {
        let mut faults = self.lock();
        match &faults.lost {
            Some(lost) => Some(ExecutorError::DeviceLost(lost.clone())),
            None => faults.error.take(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(unsafe_code, reason = "wgpu asks for a word on experimental features")]
fn experimental(caps: &Caps) -> wgpu::ExperimentalFeatures {
    match caps.coop {
        None => wgpu::ExperimentalFeatures::disabled(),
        // SAFETY: cooperative matrices are the one such feature that is ever wanted. What may go
        // wrong with them is a driver's crash or a wrong number, which the self-test looks for.
        Some(_) => unsafe { wgpu::ExperimentalFeatures::enabled() },
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[allow(unsafe_code, reason = "wgpu trusts the cache's bytes")]
fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
    if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
        return None;
    }
    // SAFETY: wgpu and the driver check the header of the data against adapter and version and
    // fall back to an empty cache; the caller hands back only what `pipeline_cache` gave.
    Some(unsafe {
        device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
            label: Some("twoclock"),
            data,
            fallback: true,
        })
    })
}

#[cfg(target_arch = "wasm32")]
fn pipeline_cache(_: &wgpu::Device, _: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
    None
}
