//! A device beside the reference: runs every dispatch of every program on both, each from equal inputs,
//! and compares what they wrote. So whatever an engine does with the device is checked kernel by kernel,
//! on inputs that kernels before gave. Knows no model.

mod agreement;

pub use agreement::{Agreement, TOLERANCE};

use crate::caps::Caps;
use crate::cpu::CpuExecutor;
use crate::executor::{Executor, ExecutorError, Ticket};
use crate::kernel::{Access, KernelKey};
use crate::kernels;
use crate::program::{BufferId, Command, Dispatch, Program, Slice, StepArgs};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

/// What was compared so far, by variant; shared with the executor.
pub type Agreements = Rc<RefCell<HashMap<KernelKey, Agreement>>>;

type Read = Pin<Box<dyn Future<Output = Result<Vec<u8>, ExecutorError>>>>;

/// Runs everything on a device and on the reference.
#[derive(Debug)]
pub struct TwinExecutor<E> {
    device: E,
    reference: CpuExecutor,
    /// Of both, by the number given out.
    buffers: Vec<Option<(BufferId, BufferId)>>,
    agreements: Agreements,
}

impl<E: Executor> TwinExecutor<E> {
    /// Beside this device, the reference as it would run the same programs.
    pub fn new(device: E) -> (Self, Agreements) {
        let reference = CpuExecutor::new(device.caps().clone());
        Self::beside(device, reference)
    }

    /// As [`new`](Self::new), with a given reference, whose capabilities programs are built for.
    pub fn beside(device: E, reference: CpuExecutor) -> (Self, Agreements) {
        let agreements = Agreements::default();
        let twin = Self {
            device,
            reference,
            buffers: Vec::new(),
            agreements: Rc::clone(&agreements),
        };
        (twin, agreements)
    }

    fn both(&self, buffer: BufferId) -> Result<(BufferId, BufferId), ExecutorError> {
        let both = self.buffers.get(buffer.0 as usize).copied().flatten();
        both.ok_or_else(|| ExecutorError::Invalid(format!("{buffer:?} does not exist")))
    }

    fn slices(&self, slice: Slice) -> Result<[Slice; 2], ExecutorError> {
        let (device, reference) = self.both(slice.buffer)?;
        Ok([device, reference].map(|buffer| Slice { buffer, ..slice }))
    }

    /// Runs one dispatch on both and compares; afterwards both hold what the device wrote.
    fn compare(&mut self, dispatch: &Dispatch, counts: &[u32]) -> Result<(), ExecutorError> {
        let key = &dispatch.key;
        let kernel = kernels::find(key.kernel)
            .ok_or_else(|| ExecutorError::Invalid(format!("{key}: there is no such kernel")))?;
        let grid = dispatch.resolve_grid(counts).unwrap_or_default();
        if grid.contains(&0) {
            return Ok(());
        }
        let mut twins = [dispatch.clone(), dispatch.clone()];
        for (i, &slice) in dispatch.bindings.iter().enumerate() {
            let [device, reference] = self.slices(slice)?;
            (twins[0].bindings[i], twins[1].bindings[i]) = (device, reference);
        }
        let args = StepArgs {
            upload: None,
            counts: counts.to_vec(),
        };
        let [on_device, on_reference] = twins;
        let bindings = kernel.bindings.iter().zip(&on_device.bindings);
        let bindings = bindings.zip(&on_reference.bindings);
        let written: Vec<_> = bindings
            .filter(|((def, _), _)| def.access == Access::ReadWrite)
            .map(|((def, device), reference)| (def.name, *device, *reference))
            .collect();
        let mut before = Vec::new();
        for (_, _, reference) in &written {
            before.push(words(&mut self.reference, *reference)?);
        }
        let program = |dispatch: Dispatch| Program::new(key.to_string(), vec![dispatch.into()]);
        self.device.launch(&program(on_device), &args)?;
        self.reference.launch(&program(on_reference), &args)?;
        for ((name, device, reference), before) in written.into_iter().zip(before) {
            let got = words(&mut self.device, device)?;
            let expected = words(&mut self.reference, reference)?;
            let found = agreement::of_window(key, name, &before, &got, &expected);
            self.reference.write(
                reference.buffer,
                reference.offset,
                bytemuck::cast_slice(&got),
            )?;
            let mut agreements = self.agreements.borrow_mut();
            agreements.entry(key.clone()).or_default().add(found);
        }
        self.agreements
            .borrow_mut()
            .entry(key.clone())
            .or_default()
            .launches += 1;
        Ok(())
    }
}

fn words(executor: &mut impl Executor, slice: Slice) -> Result<Vec<u32>, ExecutorError> {
    let range = slice.offset..slice.offset + slice.bytes;
    let bytes = wait(executor.read(slice.buffer, range))?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// Polls to the end: natively a read waits where it is polled.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

impl<E: Executor> Executor for TwinExecutor<E> {
    fn caps(&self) -> &Caps {
        self.reference.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        let device = self.device.create_buffer(label, bytes)?;
        let reference = self.reference.create_buffer(label, bytes)?;
        self.buffers.push(Some((device, reference)));
        let id = u32::try_from(self.buffers.len() - 1);
        id.map(BufferId)
            .map_err(|_| ExecutorError::Invalid("too many buffers".into()))
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        if let Some((device, reference)) = self
            .buffers
            .get_mut(buffer.0 as usize)
            .and_then(Option::take)
        {
            self.device.destroy_buffer(device);
            self.reference.destroy_buffer(reference);
        }
    }

    fn release(&mut self) {
        self.device.release();
        self.reference.release();
        self.buffers.clear();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        let (device, reference) = self.both(buffer)?;
        self.device.write(device, offset, data)?;
        self.reference.write(reference, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        if let Some((buffer, data)) = &args.upload {
            self.write(*buffer, 0, data)?;
        }
        let mut ticket = Ticket(0);
        for command in program.commands() {
            match command {
                Command::Dispatch(dispatch) => self.compare(dispatch, &args.counts)?,
                Command::Copy { src, dst } => {
                    let (src, dst) = (self.slices(*src)?, self.slices(*dst)?);
                    let copy = |i: usize| {
                        let (src, dst) = (src[i], dst[i]);
                        Program::new("copy", vec![Command::Copy { src, dst }])
                    };
                    ticket = self.device.launch(&copy(0), &StepArgs::default())?;
                    self.reference.launch(&copy(1), &StepArgs::default())?;
                }
                Command::Cut => {}
            }
        }
        Ok(ticket)
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let read: Read = match self.both(buffer) {
            Ok((device, _)) => Box::pin(self.device.read(device, range)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        };
        read
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let read: Read = match self.both(buffer) {
            Ok((device, _)) => Box::pin(self.device.read_with_next(device, range)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        };
        read
    }
}
