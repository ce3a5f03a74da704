//! Prepares a program once: its pipelines, its bind groups, and all its parameters in one uniform
//! buffer, so that a step only records dispatches. What differs in the grid alone is prepared once.

use super::buffers::Buffers;
use super::device::GpuDevice;
use super::pipelines::Pipelines;
use crate::caps::DeviceKind;
use crate::executor::ExecutorError;
use crate::kernel::Access;
use crate::kernels;
use crate::program::{Dispatch, Program};
use std::collections::HashMap;
use std::sync::Weak;

/// Most bind groups and buffers together on a processor. Mesa's lavapipe maps memory for each, and more while
/// a step runs; Linux lets a process have 65530 such pieces, and the driver falls where it gets none.
const MOST_ON_PROCESSORS: usize = 48_000;

/// A dispatch ready to record.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) bind_group: wgpu::BindGroup,
    pub(super) params_at: u32,
}

/// A program's dispatches, ready.
#[derive(Debug)]
pub(super) struct Prepared {
    ready: Vec<Ready>,
    /// Which of them each dispatch is, in order.
    order: Vec<usize>,
    life: Weak<()>,
}

impl Prepared {
    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Ready> {
        self.order.iter().map(|&i| &self.ready[i])
    }

    /// Bind groups.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether its program can come again.
    pub(super) fn is_alive(&self) -> bool {
        self.life.strong_count() > 0
    }
}

/// Prepares a program on a device that holds so many bind groups already.
pub(super) fn prepare(
    gpu: &GpuDevice,
    pipelines: &mut Pipelines,
    buffers: &Buffers,
    program: &Program,
    held: usize,
) -> Result<Prepared, ExecutorError> {
    let mut unique: Vec<&Dispatch> = Vec::new();
    let mut known = HashMap::new();
    let order = program.dispatches().map(|dispatch| {
        let Dispatch {
            key,
            bindings,
            params,
            ..
        } = dispatch;
        *known.entry((key, bindings, params)).or_insert_with(|| {
            unique.push(dispatch);
            unique.len() - 1
        })
    });
    let order = order.collect();
    let needed = held + unique.len() + buffers.count();
    if gpu.summary.caps.kind == DeviceKind::Cpu && needed > MOST_ON_PROCESSORS {
        return Err(ExecutorError::TooManyBindings {
            program: program.label.clone(),
            needed,
            limit: MOST_ON_PROCESSORS,
        });
    }
    let stride = gpu.summary.caps.binding_alignment.max(256) as usize;
    let mut bytes = vec![0u8; (unique.len() * stride).max(4)];
    for (i, dispatch) in unique.iter().enumerate() {
        let slot = bytes
            .get_mut(i * stride..)
            .and_then(|slot| slot.get_mut(..dispatch.params.len()))
            .ok_or_else(|| invalid(dispatch, "parameters exceed a slot"))?;
        slot.copy_from_slice(&dispatch.params);
    }
    let uniforms = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("params"),
        size: bytes.len() as u64,
        usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    gpu.queue.write_buffer(&uniforms, 0, &bytes);
    let ready = unique.iter().enumerate().map(|(i, dispatch)| {
        let params_at = (i * stride) as u32;
        ready(gpu, pipelines, buffers, dispatch, &uniforms, params_at)
    });
    Ok(Prepared {
        ready: ready.collect::<Result<_, _>>()?,
        order,
        life: program.life(),
    })
}

fn invalid(dispatch: &Dispatch, what: &str) -> ExecutorError {
    ExecutorError::Invalid(format!("{}: {what}", dispatch.key))
}

fn ready(
    gpu: &GpuDevice,
    pipelines: &mut Pipelines,
    buffers: &Buffers,
    dispatch: &Dispatch,
    uniforms: &wgpu::Buffer,
    params_at: u32,
) -> Result<Ready, ExecutorError> {
    let kernel = kernels::find(dispatch.key.kernel)
        .ok_or_else(|| invalid(dispatch, "there is no such kernel"))?;
    if dispatch.bindings.len() != kernel.bindings.len()
        || dispatch.params.len() != kernel.params_bytes()
    {
        return Err(invalid(dispatch, "bindings or parameters do not fit"));
    }
    let caps = &gpu.summary.caps;
    let mut entries = Vec::with_capacity(dispatch.bindings.len() + 1);
    for (binding, (def, slice)) in kernel.bindings.iter().zip(&dispatch.bindings).enumerate() {
        if slice.offset % caps.binding_alignment != 0 || slice.bytes > caps.max_binding_bytes {
            return Err(invalid(
                dispatch,
                &format!("{slice:?} ({}) cannot be bound", def.name),
            ));
        }
        let written_twice = def.access == Access::ReadWrite
            && dispatch
                .bindings
                .iter()
                .filter(|s| s.buffer == slice.buffer)
                .count()
                > 1;
        if written_twice {
            return Err(invalid(
                dispatch,
                &format!("{} is written and bound twice", def.name),
            ));
        }
        entries.push(wgpu::BindGroupEntry {
            binding: binding as u32,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: buffers.window(slice)?,
                offset: slice.offset,
                size: wgpu::BufferSize::new(slice.bytes),
            }),
        });
    }
    entries.push(wgpu::BindGroupEntry {
        binding: entries.len() as u32,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: uniforms,
            offset: 0,
            size: wgpu::BufferSize::new(kernel.params_bytes() as u64),
        }),
    });
    let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: pipelines.layout(gpu, kernel),
        entries: &entries,
    });
    gpu.check()?;
    Ok(Ready {
        pipeline: pipelines.get(gpu, kernel, &dispatch.key)?.clone(),
        bind_group,
        params_at,
    })
}
