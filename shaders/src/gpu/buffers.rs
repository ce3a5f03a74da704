//! The executor's buffers by number.

use super::device::GpuDevice;
use crate::executor::ExecutorError;
use crate::program::{BufferId, Slice};

#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Option<wgpu::Buffer>>);

impl Buffers {
    pub(super) fn create(
        &mut self,
        gpu: &GpuDevice,
        label: &str,
        bytes: u64,
    ) -> Result<BufferId, ExecutorError> {
        let bytes = bytes.next_multiple_of(4).max(4);
        let limit = gpu.summary.caps.max_buffer_bytes;
        if bytes > limit {
            return Err(ExecutorError::BufferTooLarge {
                label: label.into(),
                bytes,
                limit,
            });
        }
        gpu.check()?;
        let buffer = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        gpu.check().map_err(|e| match e {
            ExecutorError::OutOfMemory { .. } => ExecutorError::OutOfMemory {
                label: label.into(),
                bytes,
            },
            e => e,
        })?;
        self.0.push(Some(buffer));
        Ok(BufferId(u32::try_from(self.0.len() - 1).map_err(|_| {
            ExecutorError::Invalid("too many buffers".into())
        })?))
    }

    pub(super) fn destroy(&mut self, id: BufferId) {
        if let Some(buffer) = self.0.get_mut(id.0 as usize).and_then(Option::take) {
            buffer.destroy();
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Bytes of all there are.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().flatten().map(wgpu::Buffer::size).sum()
    }

    pub(super) fn get(&self, id: BufferId) -> Result<&wgpu::Buffer, ExecutorError> {
        self.0
            .get(id.0 as usize)
            .and_then(Option::as_ref)
            .ok_or_else(|| ExecutorError::Invalid(format!("{id:?} does not exist")))
    }

    /// The buffer of a window that lies inside it.
    pub(super) fn window(&self, slice: &Slice) -> Result<&wgpu::Buffer, ExecutorError> {
        let buffer = self.get(slice.buffer)?;
        let inside = slice
            .offset
            .checked_add(slice.bytes)
            .is_some_and(|end| end <= buffer.size());
        if inside && slice.offset.is_multiple_of(4) && slice.bytes.is_multiple_of(4) {
            Ok(buffer)
        } else {
            Err(ExecutorError::Invalid(format!(
                "{slice:?} is not inside its buffer of {} bytes",
                buffer.size()
            )))
        }
    }
}
