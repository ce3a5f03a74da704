//! A device that goes away at a launch of a test's choosing.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::program::{BufferId, Program, StepArgs};

/// How a device is lost.
#[derive(Clone, Copy, Debug)]
pub enum Loss<E> {
    /// It is there, but every call says that it is not.
    Claimed,
    /// This makes it go; what it then says is its own.
    Real(fn(&E)),
}

/// Passes everything on until the device is lost.
#[derive(Debug)]
pub struct Losing<E> {
    inner: E,
    /// Launches left, of all devices together; `None` for ever.
    left: Rc<Cell<Option<usize>>>,
    loss: Loss<E>,
    claims: bool,
}

impl<E: Executor> Losing<E> {
    /// Loses `inner` at the launch after so many.
    pub fn new(inner: E, left: Rc<Cell<Option<usize>>>, loss: Loss<E>) -> Self {
        Self {
            inner,
            left,
            loss,
            claims: false,
        }
    }

    fn check(&self) -> Result<(), ExecutorError> {
        match self.claims {
            true => Err(ExecutorError::DeviceLost("a test".into())),
            false => Ok(()),
        }
    }
}

type ReadBack = Pin<Box<dyn Future<Output = Result<Vec<u8>, ExecutorError>>>>;

impl<E: Executor> Executor for Losing<E> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        self.check()?;
        self.inner.create_buffer(label, bytes)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        self.inner.destroy_buffer(buffer);
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        self.check()?;
        self.inner.write(buffer, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        match self.left.get() {
            Some(0) => {
                self.left.set(None);
                match self.loss {
                    Loss::Claimed => self.claims = true,
                    Loss::Real(lose) => lose(&self.inner),
                }
            }
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.check()?;
        self.inner.launch(program, args)
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let back: ReadBack = match self.check() {
            Ok(()) => Box::pin(self.inner.read(buffer, range)),
            Err(lost) => Box::pin(std::future::ready(Err(lost))),
        };
        back
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let back: ReadBack = match self.check() {
            Ok(()) => Box::pin(self.inner.read_with_next(buffer, range)),
            Err(lost) => Box::pin(std::future::ready(Err(lost))),
        };
        back
    }
}
