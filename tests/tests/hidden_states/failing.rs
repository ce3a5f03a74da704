//! An executor that loses one launch.

use std::future::Future;
use std::ops::Range;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::program::{BufferId, Program, StepArgs};

/// Passes everything on but launch number `fail_at`, counted from 1, and says so.
pub(crate) struct Failing<E> {
    inner: E,
    fail_at: usize,
    launches: usize,
}

impl<E: Executor> Failing<E> {
    pub(crate) fn new(inner: E, fail_at: usize) -> Self {
        let launches = 0;
        Self {
            inner,
            fail_at,
            launches,
        }
    }

    /// Whether the launch came.
    pub(crate) fn has_failed(&self) -> bool {
        self.launches >= self.fail_at
    }
}

impl<E: Executor> Executor for Failing<E> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        self.inner.create_buffer(label, bytes)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        self.inner.destroy_buffer(buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        self.inner.write(buffer, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        self.launches += 1;
        if self.launches == self.fail_at {
            return Err(ExecutorError::Invalid("a test".to_owned()));
        }
        self.inner.launch(program, args)
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        self.inner.read(buffer, range)
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        self.inner.read_with_next(buffer, range)
    }
}
