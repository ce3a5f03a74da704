//! Compiled variants by key.

use super::device::GpuDevice;
use crate::executor::ExecutorError;
use crate::kernel::{Access, Kernel, KernelKey};
use crate::link::link;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Pipelines {
    pipelines: HashMap<KernelKey, wgpu::ComputePipeline>,
    layouts: HashMap<Vec<Access>, wgpu::BindGroupLayout>,
}

impl Pipelines {
    /// The bind group layout of a kernel: its storage buffers, then its parameters as a uniform
    /// with a dynamic offset.
    pub(super) fn layout(&mut self, gpu: &GpuDevice, kernel: &Kernel) -> &wgpu::BindGroupLayout {
        let accesses: Vec<Access> = kernel.bindings.iter().map(|b| b.access).collect();
        self.layouts.entry(accesses).or_insert_with_key(|accesses| {
            let entry = |binding: usize, ty| wgpu::BindGroupLayoutEntry {
                binding: binding as u32,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty,
                count: None,
            };
            let mut entries: Vec<_> = accesses
                .iter()
                .enumerate()
                .map(|(binding, &access)| {
                    entry(
                        binding,
                        wgpu::BindingType::Buffer {
                            ty: wgpu::BufferBindingType::Storage {
                                read_only: access == Access::Read,
                            },
                            has_dynamic_offset: false,
                            min_binding_size: None,
                        },
                    )
                })
                .collect();
            entries.push(entry(
                accesses.len(),
                wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: true,
                    min_binding_size: None,
                },
            ));
            gpu.device
                .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: None,
                    entries: &entries,
                })
        })
    }

    /// The compiled variant.
    pub(super) fn get(
        &mut self,
        gpu: &GpuDevice,
        kernel: &Kernel,
        key: &KernelKey,
    ) -> Result<&wgpu::ComputePipeline, ExecutorError> {
        if !self.pipelines.contains_key(key) {
            let pipeline = self.compile(gpu, kernel, key)?;
            self.pipelines.insert(key.clone(), pipeline);
        }
        Ok(&self.pipelines[key])
    }

    fn compile(
        &mut self,
        gpu: &GpuDevice,
        kernel: &Kernel,
        key: &KernelKey,
    ) -> Result<wgpu::ComputePipeline, ExecutorError> {
        let text = link(kernel, key, gpu.summary.caps.dialect)
            .map_err(|e| ExecutorError::Invalid(e.to_string()))?;
        let label = key.to_string();
        let module = module(gpu, &label, &text);
        let layout = self.layout(gpu, kernel);
        let layout = gpu
            .device
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(layout)],
                immediate_size: 0,
            });
        let pipeline = gpu
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&label),
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: gpu.cache.as_ref(),
            });
        gpu.check().map_err(|e| match e {
            ExecutorError::Invalid(what) => ExecutorError::Invalid(format!("{label}: {what}")),
            e => e,
        })?;
        Ok(pipeline)
    }
}

#[allow(
    unsafe_code,
    reason = "run-time checks of shaders cost a tenth of the time"
)]
fn module(gpu: &GpuDevice, label: &str, text: &str) -> wgpu::ShaderModule {
    // SAFETY: the text is one of this crate's own kernels. Indices come from programs whose
    // windows are checked and from ids and slots checked before a step; every loop is bounded.
    unsafe {
        gpu.device.create_shader_module_trusted(
            wgpu::ShaderModuleDescriptor {
                label: Some(label),
                source: wgpu::ShaderSource::Wgsl(text.into()),
            },
            wgpu::ShaderRuntimeChecks::unchecked(),
        )
    }
}
