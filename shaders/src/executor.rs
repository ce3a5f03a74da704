//! The one interface between the engine and a device: buffers, programs, and bytes in and out, all
//! in queue order. Knows no graphics API.

use crate::caps::Caps;
use crate::program::{BufferId, Dispatch, Program, Slice, StepArgs};
use std::future::Future;
use std::ops::Range;
use thiserror::Error;

/// What a device refuses or fails at.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExecutorError {
    /// No device answers to the request.
    #[error("no usable device: {0}")]
    NoDevice(String),
    /// The device is gone; a new one must be made and filled again.
    #[error("the device was lost: {0}")]
    DeviceLost(String),
    /// An allocation failed.
    #[error(
        "the device has no memory for {label} ({bytes} bytes); use a smaller model, context or batch"
    )]
    OutOfMemory {
        /// What was to be allocated.
        label: String,
        /// Its size.
        bytes: u64,
    },
    /// A buffer would exceed the device's limit.
    #[error(
        "{label} needs {bytes} bytes, more than the {limit} one buffer of this device may hold"
    )]
    BufferTooLarge {
        /// What was to be allocated.
        label: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A program has more dispatches than the device's driver can keep bindings for.
    #[error(
        "{program} would bring bindings to {needed}, more than the {limit} that a software driver bears; \
         use a model of fewer layers"
    )]
    TooManyBindings {
        /// What the program is.
        program: String,
        /// Bind groups and buffers with those of the program.
        needed: usize,
        /// The limit.
        limit: usize,
    },
    /// A program, write or read names a buffer or range that does not exist, or a variant that
    /// cannot be linked or compiled: a fault of the program's builder.
    #[error("invalid command: {0}")]
    Invalid(String),
}

/// The grid of a dispatch in a step with these counts.
///
/// # Errors
/// [`ExecutorError::Invalid`] for a count the step does not give and a grid no device with these
/// caps takes.
pub(crate) fn step_grid(
    dispatch: &Dispatch,
    counts: &[u32],
    caps: &Caps,
) -> Result<[u32; 3], ExecutorError> {
    let invalid = |what: String| ExecutorError::Invalid(format!("{}: {what}", dispatch.key));
    let grid = dispatch
        .resolve_grid(counts)
        .ok_or_else(|| invalid(format!("the step gives {} counts only", counts.len())))?;
    if grid.iter().any(|&n| n > caps.max_workgroups) {
        return Err(invalid(format!("grid {grid:?} exceeds the device's limit")));
    }
    Ok(grid)
}

/// Checks what every device asks of a copy.
///
/// # Errors
/// [`ExecutorError::Invalid`] for windows of different lengths or of one buffer.
pub(crate) fn check_copy(src: &Slice, dst: &Slice) -> Result<(), ExecutorError> {
    if src.bytes == dst.bytes && src.buffer != dst.buffer {
        return Ok(());
    }
    Err(ExecutorError::Invalid(format!(
        "a copy from {src:?} to {dst:?}: windows must be equally long and in different buffers"
    )))
}

/// Names a launched program; tickets of one executor grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Runs programs. Everything happens in the order of the calls.
pub trait Executor {
    /// What the device can do.
    fn caps(&self) -> &Caps;

    /// Whether what is written stays: where it does not, weights need not be read for it.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Allocates `bytes` (rounded up to 4), filled with zeros.
    ///
    /// # Errors
    /// [`ExecutorError::OutOfMemory`], [`ExecutorError::BufferTooLarge`] or a lost device.
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError>;

    /// Frees a buffer; programs that name it may not be launched any more.
    fn destroy_buffer(&mut self, buffer: BufferId);

    /// Frees all buffers of a lost device, so that another has room for them; nothing may be launched
    /// any more.
    fn release(&mut self);

    /// Writes `data` (a multiple of 4 bytes) at `offset` (a multiple of 4).
    ///
    /// # Errors
    /// A range outside the buffer, or a lost device.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError>;

    /// Uploads the step's bytes and runs the program.
    ///
    /// # Errors
    /// An invalid program, or a lost device.
    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError>;

    /// Reads a range (4-byte aligned) as it is after everything launched before this call. The
    /// future does not borrow the executor: more may be launched before it is awaited.
    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static;

    /// As [`read`](Self::read), and on its way with whatever is read or written next: several reads
    /// after one step are one submit. Awaited before that, it may be an error.
    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static;
}

impl<E: Executor> Executor for &mut E {
    fn caps(&self) -> &Caps {
        (**self).caps()
    }

    fn keeps_data(&self) -> bool {
        (**self).keeps_data()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        (**self).create_buffer(label, bytes)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        (**self).destroy_buffer(buffer);
    }

    fn release(&mut self) {
        (**self).release();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        (**self).write(buffer, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        (**self).launch(program, args)
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        (**self).read(buffer, range)
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        (**self).read_with_next(buffer, range)
    }
}
