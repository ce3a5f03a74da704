//! What steps record besides their logits: which of the taps a model was loaded with, and how their
//! rows come back. Knows no request: rows are those of the last step's tokens, in its order.

use super::ModelRunner;
use crate::config::ModelConfig;
use crate::error::Result;
use crate::model::{Tap, TapBuffers, Taps, TapsError};
use std::ops::Range;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::program::Slice;

/// Buffers of the taps, and which of them the next steps fill.
#[derive(Debug)]
pub(super) struct Recorder {
    loaded: TapBuffers,
    recorded: TapBuffers,
    tokens: usize,
}

impl Recorder {
    /// Makes the buffers; all are filled until something else is said.
    pub(super) fn new(
        executor: &mut impl Executor,
        config: &ModelConfig,
        taps: &Taps,
        tokens: u32,
    ) -> Result<Self> {
        let tokens = tokens as usize;
        let loaded = TapBuffers::create(executor, config, taps, tokens)?;
        Ok(Self {
            recorded: loaded.clone(),
            loaded,
            tokens,
        })
    }

    /// What the next step fills.
    pub(super) fn recorded(&self) -> &TapBuffers {
        &self.recorded
    }
}

impl<E: Executor> ModelRunner<E> {
    /// Says which of the taps it was loaded with the next steps record.
    ///
    /// # Errors
    /// [`TapsError::NotRecorded`] for one it was not loaded with; nothing changes then.
    pub fn record(&mut self, taps: &Taps) -> Result<(), TapsError> {
        self.recorder.recorded = self.recorder.loaded.of(taps)?;
        Ok(())
    }

    /// Where steps record a tap, for kernels of the same executor to bind: f32
    /// `[max_num_batched_tokens][hidden_size]`, a row a token of the last step that was launched.
    ///
    /// # Errors
    /// [`TapsError::NotRecorded`].
    pub fn tap(&self, tap: Tap) -> Result<Slice, TapsError> {
        self.recorder.recorded.get(tap)
    }

    /// Reads recorded rows of the last step that was launched: f32 `[rows][hidden_size]`.
    ///
    /// # Errors
    /// What is not recorded, rows beyond the longest step, or the device's.
    pub async fn read_tap(&mut self, tap: Tap, rows: Range<usize>) -> Result<Vec<f32>> {
        let Slice { buffer, .. } = self.tap(tap)?;
        let tokens = self.recorder.tokens;
        if rows.start > rows.end || rows.end > tokens {
            let Range { start, end } = rows;
            return Err(TapsError::NoSuchRows { start, end, tokens }.into());
        }
        let row = Taps::buffer_bytes(&self.model().config, 1);
        let bytes = row * rows.start as u64..row * rows.end as u64;
        let back = self.executor.read(buffer, bytes);
        Ok(bytemuck::pod_collect_to_vec(&back.await?))
    }
}
