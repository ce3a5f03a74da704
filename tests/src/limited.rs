//! An executor that claims smaller limits than it has, so that small models reach the borders of
//! large ones.

use std::future::Future;
use std::ops::Range;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::program::{BufferId, Command, Program, StepArgs};

/// Passes everything on, and holds every binding to the claimed limit.
#[derive(Debug)]
pub struct Limited<E> {
    inner: E,
    caps: Caps,
}

impl<E: Executor> Limited<E> {
    /// Wraps an executor of which only so much is claimed.
    pub fn new(inner: E, limit: impl Fn(&Caps) -> Caps) -> Self {
        let caps = limit(inner.caps());
        Self { inner, caps }
    }
}

impl<E: Executor> Executor for Limited<E> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        self.inner.create_buffer(label, bytes)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) {
        self.inner.destroy_buffer(buffer);
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), ExecutorError> {
        self.inner.write(buffer, offset, data)
    }

    fn launch(&mut self, program: &Program, args: &StepArgs) -> Result<Ticket, ExecutorError> {
        for command in program.commands() {
            if let Command::Dispatch(dispatch) = command {
                for slice in &dispatch.bindings {
                    let most = self.caps.max_binding_bytes;
                    assert!(slice.bytes <= most, "{}: {slice:?}", dispatch.key);
                }
            }
        }
        self.inner.launch(program, args)
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
