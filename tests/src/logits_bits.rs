//! An executor that keeps the bits of every row of logits read through it, so that ways of serving
//! can be compared by the logits themselves and not by what is computed of them.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError, Ticket};
use twoclock_shaders::program::{BufferId, Program, StepArgs};

/// Rows of logits, f32 bits, in the order they were read.
pub type LogitsRows = Rc<RefCell<Vec<Vec<u32>>>>;

/// Passes everything on; keeps what is read of the buffer called `logits`.
#[derive(Debug)]
pub struct LogitsBits<E> {
    inner: E,
    vocab: usize,
    logits: Option<BufferId>,
    rows: LogitsRows,
}

impl<E: Executor> LogitsBits<E> {
    /// Wraps an executor for a model of `vocab` ids; the rows collect in the second value.
    pub fn new(inner: E, vocab: usize) -> (Self, LogitsRows) {
        let rows = LogitsRows::default();
        let executor = Self {
            inner,
            vocab,
            logits: None,
            rows: Rc::clone(&rows),
        };
        (executor, rows)
    }
}

impl<E: Executor> Executor for LogitsBits<E> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, ExecutorError> {
        let buffer = self.inner.create_buffer(label, bytes)?;
        if label == "logits" {
            self.logits = Some(buffer);
        }
        Ok(buffer)
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
        self.inner.launch(program, args)
    }

    fn read(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let keep = self.keep(buffer);
        kept(keep, self.inner.read(buffer, range))
    }

    fn read_with_next(
        &mut self,
        buffer: BufferId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ExecutorError>> + 'static {
        let keep = self.keep(buffer);
        kept(keep, self.inner.read_with_next(buffer, range))
    }
}

impl<E> LogitsBits<E> {
    /// Where what is read of this buffer is kept, and how long its rows are.
    fn keep(&self, buffer: BufferId) -> Option<(LogitsRows, usize)> {
        (self.logits == Some(buffer)).then(|| (Rc::clone(&self.rows), self.vocab))
    }
}

/// What is read, which is kept where it is logits.
async fn kept(
    keep: Option<(LogitsRows, usize)>,
    back: impl Future<Output = Result<Vec<u8>, ExecutorError>>,
) -> Result<Vec<u8>, ExecutorError> {
    let bytes = back.await?;
    if let Some((rows, vocab)) = keep {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        rows.borrow_mut()
            .extend(words.chunks_exact(vocab).map(<[u32]>::to_vec));
    }
    Ok(bytes)
}
