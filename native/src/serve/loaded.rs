//! A model that is loaded: its engine on a thread of its own, and what reading requests for it takes.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use twoclock_core::engine::EngineHandle;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::text::ChatTemplate;
use twoclock_core::weights::{GenerationDefaults, PoolingDefaults};

use crate::device_rates::Rates;
use crate::engine_thread::EngineThread;
use crate::openai::Serving;

/// Bytes of a prompt's text for each token of the context: more than any tokenizer's longest tokens have,
/// so that what is longer cannot fit.
const BYTES_PER_TOKEN: usize = 128;

/// A model and its engine.
pub struct Loaded {
    handle: EngineHandle,
    /// Until it is ended.
    thread: Mutex<Option<EngineThread>>,
    template: Option<ChatTemplate>,
    defaults: GenerationDefaults,
    pooling: PoolingDefaults,
    max_model_len: usize,
    /// Of its device, where they were measured.
    rates: Option<Rates>,
    heeds_priority: bool,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl Loaded {
    /// An engine whose sequences have `max_model_len` tokens at most, and what its model's files say.
    pub fn new(
        thread: EngineThread,
        template: Option<ChatTemplate>,
        defaults: GenerationDefaults,
        pooling: PoolingDefaults,
        max_model_len: usize,
    ) -> Self {
        Self {
            handle: thread.handle(),
            thread: Mutex::new(Some(thread)),
            template,
            defaults,
            pooling,
            max_model_len,
            rates: None,
            heeds_priority: false,
        }
    }

    /// The same on a device that reaches these rates.
    pub fn under(self, rates: Option<Rates>) -> Self {
        Self { rates, ..self }
    }

    /// The same for clients that may say how urgent their requests are, or may not, which is so at first.
    pub fn heeding_priority(self, heeds_priority: bool) -> Self {
        Self {
            heeds_priority,
            ..self
        }
    }

    /// What its device reaches, where that was measured.
    pub fn rates(&self) -> Option<Rates> {
        self.rates
    }

    /// Its engine.
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    /// How its files have embeddings made.
    pub fn pooling(&self) -> &PoolingDefaults {
        &self.pooling
    }

    /// Longest sequence, tokens.
    pub fn max_model_len(&self) -> usize {
        self.max_model_len
    }

    /// What reading a request takes.
    pub fn serving(&self) -> Serving<'_> {
        Serving {
            tokenizer: self.handle.tokenizer(),
            template: self.template.as_ref(),
            defaults: &self.defaults,
            max_model_len: self.max_model_len,
            max_prompt_bytes: Some(self.max_model_len.saturating_mul(BYTES_PER_TOKEN)),
            heeds_priority: self.heeds_priority,
        }
    }

    /// Ends the engine, what it has included, and waits for that: blocks.
    ///
    /// # Errors
    /// It had ended before, as it could not go on.
    pub fn end(&self) -> Result<(), StreamError> {
        self.handle.stop();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.take().map_or(Ok(()), EngineThread::join)
    }
}
