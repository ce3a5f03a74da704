//! Runs programs with the reference kernels, in memory, at once. The whole engine runs on it where
//! there is no GPU; it holds every dispatch to the rules a GPU has.

use super::bound::{Bound, Window};
use super::{CpuKernel, KERNELS};
use crate::caps::Caps;
use crate::executor::{Executor, ExecutorError, Ticket, check_copy, step_grid};
use crate::kernel::Access;
use crate::kernels;
use crate::program::{BufferId, Command, Dispatch, Program, Slice, StepArgs};
use std::collections::HashMap;
use std::future::{Future, ready};
use std::ops::Range;

/// The reference executor.
#[derive(Debug)]
pub struct CpuExecutor {
    caps: Caps,
    kernels: HashMap<&'static str, CpuKernel>,
    buffers: Vec<Option<Vec<u32>>>,
    tickets: u64,
}

impl Default for CpuExecutor {
    fn default() -> Self {
        Self::new(Caps::reference())
    }
}

impl CpuExecutor {
    /// An executor that claims `caps`: it runs the programs built for any device.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            kernels: KERNELS.iter().copied().collect(),
            buffers: Vec::new(),
            tickets: 0,
        }
    }

    /// Replaces one kernel, so that a test can show that a wrong one is noticed.
    #[must_use]
    pub fn with_kernel(mut self, name: &'static str, kernel: CpuKernel) -> Self {
        self.kernels.insert(name, kernel);
        self
    }

    /// Bytes of the buffers it holds.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffers
            .iter()
            .flatten()
            .map(|words| 4 * words.len() as u64)
            .sum()
    }

    fn words(&self, slice: &Slice) -> Result<Range<usize>, ExecutorError> {
        let buffer = self
            .buffers
            .get(slice.buffer.0 as usize)
            .and_then(Option::as_ref)
            .ok_or_else(|| ExecutorError::Invalid(format!("{:?} does not exist", slice.buffer)))?;
        word_range(slice.offset, slice.bytes, buffer.len())
            .ok_or_else(|| ExecutorError::Invalid(format!("{slice:?} is not inside its buffer")))
    }

    fn dispatch(&mut self, dispatch: &Dispatch, counts: &[u32]) -> Result<(), ExecutorError> {
        let grid = step_grid(dispatch, counts, &self.caps)?;
        let invalid = |what: String| ExecutorError::Invalid(format!("{}: {what}", dispatch.key));
        let kernel =
            kernels::find(dispatch.key.kernel).ok_or_else(|| invalid("no such kernel".into()))?;
        let run = *self
            .kernels
            .get(dispatch.key.kernel)
            .ok_or_else(|| invalid("has no reference".into()))?;
        if dispatch.bindings.len() != kernel.bindings.len()
            || dispatch.params.len() != kernel.params_bytes()
        {
            return Err(invalid("bindings or parameters do not fit".into()));
        }
        let ranges = dispatch
            .bindings
            .iter()
            .map(|slice| {
                if slice.offset % self.caps.binding_alignment != 0
                    || slice.bytes > self.caps.max_binding_bytes
                {
                    return Err(invalid(format!("{slice:?} cannot be bound")));
                }
                self.words(slice)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if grid.contains(&0) {
            return Ok(());
        }
        // Written buffers are taken out of the table while the kernel runs, so a buffer bound
        // twice with one of them written is noticed, as WebGPU demands.
        let mut taken: Vec<(BufferId, Vec<u32>)> = Vec::new();
        for (def, slice) in kernel.bindings.iter().zip(&dispatch.bindings) {
            if def.access == Access::ReadWrite {
                let buffer = self.buffers[slice.buffer.0 as usize].take();
                taken.push((
                    slice.buffer,
                    buffer.ok_or_else(|| {
                        invalid(format!(
                            "{:?} is written through two bindings",
                            slice.buffer
                        ))
                    })?,
                ));
            }
        }
        let mut writes = taken.iter_mut();
        let mut windows = Vec::with_capacity(ranges.len());
        let mut clash = None;
        for ((def, slice), range) in kernel.bindings.iter().zip(&dispatch.bindings).zip(ranges) {
            windows.push(match def.access {
                Access::ReadWrite => {
                    let (_, words) = writes.next().expect("one is taken for each");
                    Window::ReadWrite(Some(&mut words[range]))
                }
                Access::Read => match &self.buffers[slice.buffer.0 as usize] {
                    Some(words) => Window::Read(&words[range]),
                    None => {
                        clash = Some(slice.buffer);
                        Window::Read(&[])
                    }
                },
            });
        }
        let result = match clash {
            Some(buffer) => Err(invalid(format!("{buffer:?} is read and written"))),
            None => {
                run(&dispatch.key, &dispatch.params, &mut Bound(windows), grid);
                Ok(())
            }
        };
        for (id, words) in taken {
            self.buffers[id.0 as usize] = Some(words);
        }
        result
    }
}

fn word_range(offset: u64, bytes: u64, words: usize) -> Option<Range<usize>> {
    if !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
        return None;
    }
    let start = usize::try_from(offset / 4).ok()?;
    let end = start.checked_add(usize::try_from(bytes / 4).ok()?)?;
    (end <= words).then_some(start..end)
}

impl Executor for CpuExecutor {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        if bytes > self.caps.max_buffer_bytes {
            return Err(ExecutorError::BufferTooLarge {
                label: label.into(),
                bytes,
                limit: self.caps.max_buffer_bytes,
            });
        }
        let out_of_memory = || ExecutorError::OutOfMemory {
            label: label.into(),
            bytes,
        };
        let words = usize::try_from(bytes.div_ceil(4)).map_err(|_| out_of_memory())?;
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(words)
            .map_err(|_| out_of_memory())?;
        buffer.resize(words, 0);
        self.buffers.push(Some(buffer));
        let id = u32::try_from(self.buffers.len() - 1).map_err(|_| out_of_memory())?;
        Ok(BufferId(id))
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        if let Some(slot) = self.buffers.get_mut(buffer.0 as usize) {
            *slot = None;
        }
    }

    fn release(&mut self) {
        self.buffers.clear();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        let range = self.words(&Slice {
            buffer,
            offset,
            bytes: data.len() as u64,
        })?;
        if let Some(words) = &mut self.buffers[buffer.0 as usize] {
            bytemuck::cast_slice_mut::<u32, u8>(&mut words[range]).copy_from_slice(data);
        }
        Ok(())
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        if let Some((buffer, data)) = &args.upload {
            self.write(*buffer, 0, data)?;
        }
        for command in program.commands() {
            match command {
                Command::Dispatch(dispatch) => self.dispatch(dispatch, &args.counts)?,
                Command::Copy { src, dst } => {
                    check_copy(src, dst)?;
                    let words = {
                        let range = self.words(src)?;
                        self.buffers[src.buffer.0 as usize]
                            .as_ref()
                            .map_or_else(Vec::new, |words| words[range].to_vec())
                    };
                    self.write(dst.buffer, dst.offset, bytemuck::cast_slice(&words))?;
                }
                Command::Cut => {}
            }
        }
        self.tickets += 1;
        Ok(Ticket(self.tickets))
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let slice = Slice {
            buffer,
            offset: range.start,
            bytes: range.end.saturating_sub(range.start),
        };
        ready(self.words(&slice).map(|range| {
            self.buffers[buffer.0 as usize]
                .as_ref()
                .map_or_else(Vec::new, |words| {
                    bytemuck::cast_slice(&words[range]).to_vec()
                })
        }))
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        // Everything launched is done.
        self.read(buffer, range)
    }
}
