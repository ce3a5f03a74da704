//! The executor over wgpu: one upload, one compute pass and one submit a step where the step is
//! short, several submits cut by predicted time where it is long.

use super::bind_groups::{Prepared, prepare};
use super::buffers::Buffers;
use super::device::GpuDevice;
use super::pipelines::Pipelines;
use super::read::{ReadBack, Recorded};
use crate::caps::{Caps, DeviceKind};
use crate::executor::{Executor, ExecutorError, Ticket, check_copy, step_grid};
use crate::program::{BufferId, Command, Dispatch, Program, ProgramId, Slice, StepArgs};
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;

/// Bytes staged by writes before the queue is told to take them.
const STAGED_LIMIT: u64 = 64 << 20;

/// What a submit may cost, by prediction; drivers kill what runs for seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubmitBudget {
    /// Longest submit. Infinite where no watchdog exists.
    pub seconds: f64,
    /// Assumed bandwidth, bytes a second.
    pub bytes_per_second: f64,
    /// Assumed arithmetic, floating-point operations a second.
    pub flops_per_second: f64,
}

impl SubmitBudget {
    /// 200 ms by cautious figures on a GPU, no cap on a processor.
    pub fn for_device(caps: &Caps) -> Self {
        Self {
            seconds: match caps.kind {
                DeviceKind::Cpu => f64::INFINITY,
                DeviceKind::Gpu => 0.2,
            },
            bytes_per_second: 20e9,
            flops_per_second: 200e9,
        }
    }

    /// Seconds a dispatch of this many workgroups is predicted to take.
    fn predict(&self, dispatch: &Dispatch, grid: [u32; 3]) -> f64 {
        let groups: f64 = grid.iter().map(|&n| f64::from(n)).product();
        let bytes = groups * dispatch.cost.bytes / self.bytes_per_second;
        bytes.max(groups * dispatch.cost.flops / self.flops_per_second)
    }
}

/// Runs programs on a [`GpuDevice`].
#[derive(Debug)]
pub struct WgpuExecutor {
    gpu: GpuDevice,
    budget: SubmitBudget,
    buffers: Buffers,
    pipelines: Pipelines,
    prepared: HashMap<ProgramId, Prepared>,
    /// Recorded but not yet submitted, so that a read-back joins the step's submit.
    pending: Option<wgpu::CommandEncoder>,
    /// Reads whose copies are among it.
    reads: Vec<Recorded>,
    /// Seconds the pending commands are predicted to take.
    in_submit: f64,
    staged: u64,
    counters: Counters,
    tickets: u64,
}

/// What an executor did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Dispatches recorded; those with an empty grid are not.
    pub dispatches: u64,
    /// Submits.
    pub submits: u64,
    /// Bytes asked back.
    pub read_bytes: u64,
}

impl std::ops::Sub for Counters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            dispatches: self.dispatches - earlier.dispatches,
            submits: self.submits - earlier.submits,
            read_bytes: self.read_bytes - earlier.read_bytes,
        }
    }
}

impl WgpuExecutor {
    /// An executor on this device.
    pub fn new(gpu: GpuDevice) -> Self {
        Self {
            budget: SubmitBudget::for_device(&gpu.summary.caps),
            gpu,
            buffers: Buffers::default(),
            pipelines: Pipelines::default(),
            prepared: HashMap::new(),
            pending: None,
            reads: Vec::new(),
            in_submit: 0.0,
            staged: 0,
            counters: Counters::default(),
            tickets: 0,
        }
    }

    /// The device.
    pub fn device(&self) -> &GpuDevice {
        &self.gpu
    }

    /// Sets how long a submit may take.
    #[must_use]
    pub fn with_submit_budget(mut self, budget: SubmitBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Submits so far.
    pub fn submits(&self) -> u64 {
        self.counters.submits
    }

    /// Bytes asked back from the device so far.
    pub fn read_bytes(&self) -> u64 {
        self.counters.read_bytes
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes of the buffers it holds, those of a program's parameters and of reads left out.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    fn encoder(&mut self) -> wgpu::CommandEncoder {
        self.pending
            .take()
            .unwrap_or_else(|| self.gpu.device.create_command_encoder(&Default::default()))
    }

    fn submit(&mut self, encoder: wgpu::CommandEncoder) {
        self.staged = 0;
        self.counters.submits += 1;
        self.in_submit = 0.0;
        submit(&self.gpu.queue, encoder, &mut self.reads);
    }

    /// Submits what is recorded; writes made from now on come after it.
    fn flush(&mut self) {
        if let Some(encoder) = self.pending.take() {
            self.submit(encoder);
        }
    }

    /// The grids of a program's dispatches. Whatever can be wrong with a step is found here, before
    /// anything is recorded: what waits to be submitted is the work of other launches.
    fn grids(&self, program: &Program, counts: &[u32]) -> Result<Vec<[u32; 3]>, ExecutorError> {
        let mut grids = Vec::new();
        for command in program.commands() {
            match command {
                Command::Dispatch(dispatch) => {
                    grids.push(step_grid(dispatch, counts, &self.gpu.summary.caps)?);
                }
                Command::Copy { src, dst } => {
                    check_copy(src, dst)?;
                    self.buffers.window(src)?;
                    self.buffers.window(dst)?;
                }
                Command::Cut => {}
            }
        }
        Ok(grids)
    }

    /// Records a program after what is pending. Between two cuts lies a block; where the next block
    /// would make the submit too long, by prediction, what is recorded is submitted before it.
    fn record(&mut self, program: &Program, counts: &[u32]) -> Result<(), ExecutorError> {
        let grids = self.grids(program, counts)?;
        let prepared = &self.prepared[&program.id()];
        let mut ready = prepared.iter().zip(grids);
        let new_encoder = || self.gpu.device.create_command_encoder(&Default::default());
        let mut encoder = self.pending.take().unwrap_or_else(new_encoder);
        let mut pass: Option<wgpu::ComputePass<'static>> = None;
        for block in program.commands().split(|c| *c == Command::Cut) {
            let dispatches: Vec<&Dispatch> = block.iter().filter_map(Command::dispatch).collect();
            let group: Vec<_> = ready.by_ref().take(dispatches.len()).collect();
            let seconds: f64 = dispatches
                .iter()
                .zip(&group)
                .map(|(dispatch, (_, grid))| self.budget.predict(dispatch, *grid))
                .sum();
            if self.in_submit > 0.0 && self.in_submit + seconds > self.budget.seconds {
                drop(pass.take());
                let full = std::mem::replace(&mut encoder, new_encoder());
                submit(&self.gpu.queue, full, &mut self.reads);
                self.counters.submits += 1;
                self.in_submit = 0.0;
            }
            self.in_submit += seconds;

            let mut group = group.into_iter();
            for command in block {
                match command {
                    Command::Dispatch(_) => {
                        let (ready, grid) = group.next().ok_or_else(|| {
                            ExecutorError::Invalid("a dispatch was not prepared".into())
                        })?;
                        if grid.contains(&0) {
                            continue;
                        }
                        let pass = pass.get_or_insert_with(|| {
                            encoder
                                .begin_compute_pass(&Default::default())
                                .forget_lifetime()
                        });
                        pass.set_pipeline(&ready.pipeline);
                        pass.set_bind_group(0, &ready.bind_group, &[ready.params_at]);
                        pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
                        self.counters.dispatches += 1;
                    }
                    Command::Copy { src, dst } => {
                        drop(pass.take());
                        encoder.copy_buffer_to_buffer(
                            self.buffers.window(src)?,
                            src.offset,
                            self.buffers.window(dst)?,
                            dst.offset,
                            src.bytes,
                        );
                    }
                    Command::Cut => {}
                }
            }
        }
        drop(pass);
        self.pending = Some(encoder);
        Ok(())
    }
}

impl Executor for WgpuExecutor {
    fn caps(&self) -> &Caps {
        &self.gpu.summary.caps
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        self.buffers.create(&self.gpu, label, bytes)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        self.flush();
        self.buffers.destroy(buffer);
    }

    fn release(&mut self) {
        self.pending = None;
        self.reads.clear();
        self.prepared.clear();
        self.pipelines = Pipelines::default();
        self.buffers = Buffers::default();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        self.gpu.check()?;
        let window = Slice {
            buffer,
            offset,
            bytes: data.len() as u64,
        };
        self.flush();
        self.gpu
            .queue
            .write_buffer(self.buffers.window(&window)?, offset, data);
        self.staged += data.len() as u64;
        if self.staged > STAGED_LIMIT {
            // Writes stage in host memory until a submit is done with them.
            let encoder = self.encoder();
            self.submit(encoder);
            self.gpu
                .device
                .poll(wgpu::PollType::wait_indefinitely())
                .map_err(|e| ExecutorError::DeviceLost(e.to_string()))?;
        }
        self.gpu.check()
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        self.gpu.check()?;
        if let Some((buffer, data)) = &args.upload {
            self.write(*buffer, 0, data)?;
        }
        if !self.prepared.contains_key(&program.id()) {
            self.prepared.retain(|_, prepared| prepared.is_alive());
            let held = self.prepared.values().map(Prepared::len).sum();
            let (pipelines, buffers) = (&mut self.pipelines, &self.buffers);
            let prepared = match prepare(&self.gpu, pipelines, buffers, program, held) {
                // Others can be prepared again when they come again.
                Err(ExecutorError::TooManyBindings { .. }) if held > 0 => {
                    self.prepared.clear();
                    prepare(&self.gpu, pipelines, buffers, program, 0)
                }
                prepared => prepared,
            };
            let prepared = prepared?;
            self.prepared.insert(program.id(), prepared);
        }
        self.record(program, &args.counts)?;
        self.gpu.check()?;
        self.tickets += 1;
        Ok(Ticket(self.tickets))
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let back = self.record_read(buffer, range);
        // Also where this one is refused: what is read with it is on its way.
        self.flush();
        let back = back.and_then(|back| self.gpu.check().map(|()| back));
        async move { back?.await }
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let back = self.record_read(buffer, range);
        async move { back?.await }
    }
}

impl WgpuExecutor {
    fn record_read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> Result<ReadBack, ExecutorError> {
        self.gpu.check()?;
        let window = Slice {
            buffer,
            offset: range.start,
            bytes: range.end.saturating_sub(range.start),
        };
        let staging = self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: window.bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        // Nothing is recorded into a buffer that there is no memory for.
        self.gpu.check()?;
        self.buffers.window(&window)?;
        let mut encoder = self.encoder();
        let from = self.buffers.window(&window)?;
        encoder.copy_buffer_to_buffer(from, window.offset, &staging, 0, window.bytes);
        self.pending = Some(encoder);
        self.counters.read_bytes += window.bytes;
        let (back, recorded) = ReadBack::new(self.gpu.device.clone(), staging);
        self.reads.push(recorded);
        Ok(back)
    }
}

/// Submits what is recorded, and asks for what is read with it.
fn submit(queue: &wgpu::Queue, encoder: wgpu::CommandEncoder, reads: &mut Vec<Recorded>) {
    let submission = queue.submit([encoder.finish()]);
    for read in reads.drain(..) {
        read.submitted(submission.clone());
    }
}
