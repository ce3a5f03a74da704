//! An executor without a device: it allocates and computes nothing, and keeps what it was asked to run.
//! With it the programs that an engine builds for any device can be looked at on any machine. What is
//! read of it is zeros.

use crate::caps::Caps;
use crate::executor::{Executor, ExecutorError, Ticket, check_copy, step_grid};
use crate::program::{BufferId, Command, Dispatch, Program, StepArgs};
use std::cell::RefCell;
use std::future::{Future, ready};
use std::ops::Range;
use std::rc::Rc;

/// A dispatch that was launched, with its grid in that step.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The dispatch.
    pub dispatch: Dispatch,
    /// Workgroups.
    pub grid: [u32; 3],
}

/// What was launched, in order, up to now; shared with the executor.
pub type Launches = Rc<RefCell<Vec<Launched>>>;

/// Keeps what it was asked to run.
#[derive(Debug)]
pub struct RecordingExecutor {
    caps: Caps,
    /// Bytes of every buffer; `None` once destroyed.
    buffers: Vec<Option<u64>>,
    launches: Launches,
    tickets: u64,
}

impl RecordingExecutor {
    /// An executor that claims `caps`. Dispatches that a device would skip are not among the launches.
    pub fn new(caps: Caps) -> (Self, Launches) {
        let launches = Launches::default();
        let executor = Self {
            caps,
            buffers: Vec::new(),
            launches: Rc::clone(&launches),
            tickets: 0,
        };
        (executor, launches)
    }

    fn inside(&self, buffer: BufferId, end: Option<u64>) -> Result<(), ExecutorError> {
        let bytes = self.buffers.get(buffer.0 as usize).copied().flatten();
        match (bytes, end) {
            (Some(bytes), Some(end)) if end <= bytes => Ok(()),
            _ => Err(ExecutorError::Invalid(format!(
                "{end:?} is not inside {buffer:?} of {bytes:?} bytes"
            ))),
        }
    }
}

impl Executor for RecordingExecutor {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        let limit = self.caps.max_buffer_bytes;
        if bytes > limit {
            return Err(ExecutorError::BufferTooLarge {
                label: label.into(),
                bytes,
                limit,
            });
        }
        self.buffers.push(Some(bytes.next_multiple_of(4)));
        let id = u32::try_from(self.buffers.len() - 1);
        let id = id.map_err(|_| ExecutorError::Invalid("too many buffers".into()))?;
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
        self.inside(buffer, offset.checked_add(data.len() as u64))
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        for command in program.commands() {
            match command {
                Command::Dispatch(dispatch) => {
                    for slice in &dispatch.bindings {
                        self.inside(slice.buffer, slice.offset.checked_add(slice.bytes))?;
                    }
                    let grid = step_grid(dispatch, &args.counts, &self.caps)?;
                    if !grid.contains(&0) {
                        self.launches.borrow_mut().push(Launched {
                            dispatch: (**dispatch).clone(),
                            grid,
                        });
                    }
                }
                Command::Copy { src, dst } => check_copy(src, dst)?,
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
        let bytes = range.end.saturating_sub(range.start) as usize;
        ready(
            self.inside(buffer, Some(range.end))
                .map(|()| vec![0; bytes]),
        )
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        self.read(buffer, range)
    }
}
