//! The near end of an engine that runs elsewhere: requests in, streams out, from any number of tasks
//! or threads. Knows no thread and no device; whoever awaits the [`EngineDriver`] does.
//!
//! ```text
//!  EngineHandle ──submit──▶ mailbox ──▶ EngineDriver (owns the LlmEngine, steps it)
//!  RequestStream ◀── outbox of one request ◀──┘
//! ```

mod counts;
mod driver;
#[cfg(test)]
mod fake_engine;
#[cfg(test)]
mod form_tests;
mod last_steps;
#[cfg(test)]
mod loss_tests;
mod mailbox;
mod queue;
#[cfg(test)]
mod queue_tests;
mod stream;
mod submission;
#[cfg(test)]
mod tests;
mod together;
mod vitals;

pub use driver::{EngineDriver, Turn};
pub use last_steps::LastSteps;
pub use mailbox::{Health, Load};
pub use stream::{RequestStream, StreamError};
pub use together::Together;
pub use vitals::{engine_up, step_running};

use super::forms::FormCompiler;
use super::llm::{LlmEngine, Prompt};
use super::metrics::MetricFamily;
use crate::clock::Clock;
use crate::error::Error;
use crate::runner::ExecuteModel;
use crate::text::Tokenizer;
use crate::types::{FinishReason, PoolingParams, RequestId, SamplingParams, TokenId};
use mailbox::{Ending, Mailbox};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Bounds of a handle and its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleOptions {
    /// Requests that may wait beside the `max_num_seqs` that can run; those that came [`together`] count as one.
    /// Those that nobody reads do not count.
    ///
    /// [`together`]: EngineHandle::together
    pub max_waiting: usize,
    /// Tokens that may lie unread in one stream before its request is computed no further.
    pub max_unread_tokens: usize,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self {
            max_waiting: 1024,
            max_unread_tokens: 64,
        }
    }
}

/// Why a request was not taken in.
#[derive(Clone, Debug, Error)]
pub enum SubmitError {
    /// As many wait as may.
    #[error(
        "{waiting} requests wait already and {max_waiting} may: try again later, or raise max_waiting"
    )]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// Requests that may.
        max_waiting: usize,
    },
    /// The engine finishes what it has and takes no more.
    #[error("the engine is shutting down and takes no more requests")]
    ShuttingDown,
    /// The request itself is at fault.
    #[error(transparent)]
    Refused(Arc<Error>),
    /// Nothing drives the engine any more.
    #[error(transparent)]
    Closed(#[from] StreamError),
}

impl SubmitError {
    fn refused(error: impl Into<Error>) -> Self {
        Self::Refused(Arc::new(error.into()))
    }
}

/// An engine, from anywhere: cheap to clone, and `Send` and `Sync`. When the last clone goes, the
/// engine finishes what it has and ends.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    mailbox: Arc<Mailbox>,
    last: Arc<LastHandle>,
}

/// Shared by all clones of one handle.
struct LastHandle {
    mailbox: Arc<Mailbox>,
    tokenizer: Arc<Tokenizer>,
    vocab_size: usize,
    eos_token_ids: Vec<TokenId>,
    /// The engine's, as is the clock.
    compiler: FormCompiler,
    clock: Box<dyn Clock + Send + Sync>,
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.mailbox.end(Ending::Drain);
    }
}

impl std::fmt::Debug for LastHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastHandle").finish_non_exhaustive()
    }
}

impl EngineHandle {
    fn new<R, C>(mailbox: Arc<Mailbox>, engine: &LlmEngine<R, C>) -> Self
    where
        R: ExecuteModel,
        C: Clock + Clone + Send + Sync + 'static,
    {
        let core = engine.core();
        let last = Arc::new(LastHandle {
            mailbox: Arc::clone(&mailbox),
            tokenizer: engine.shared_tokenizer(),
            vocab_size: core.vocab_size,
            eos_token_ids: core.eos_token_ids.clone(),
            compiler: core.constraints.compiler.clone(),
            clock: Box::new(core.clock().clone()),
        });
        Self { mailbox, last }
    }

    /// Asks for an answer. The prompt's text becomes tokens and the answer's form is compiled here, on the
    /// caller's time: a form may take a second, and the first one of all makes the vocabulary known.
    ///
    /// # Errors
    /// [`SubmitError`]: the queue is full, the engine takes no more, or the request means nothing. A
    /// prompt that does not fit is told as the stream's first item.
    pub fn submit(
        &self,
        prompt: Prompt,
        params: SamplingParams,
    ) -> Result<RequestStream, SubmitError> {
        self.together(params)?.submit(prompt)
    }

    /// Asks for the embedding of a prompt, which comes as the stream's one piece. It is computed among
    /// what others generate.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); a prompt that does not fit and more dimensions than there are is told
    /// as the stream's first item.
    pub fn submit_pooling(
        &self,
        prompt: Prompt,
        params: PoolingParams,
    ) -> Result<RequestStream, SubmitError> {
        self.together_pooling(params)?.submit(prompt)
    }

    /// Takes several requests that came as one: they have one place in the queue, and their form is compiled once, here.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), but for the prompts.
    pub fn together(
        &self,
        params: impl Into<Arc<SamplingParams>>,
    ) -> Result<Together<'_>, SubmitError> {
        Together::answers(self, params.into())
    }

    /// Takes several requests for embeddings that came as one, and have one place in the queue.
    ///
    /// # Errors
    /// As [`submit_pooling`](Self::submit_pooling), but for the prompts.
    pub fn together_pooling(&self, params: PoolingParams) -> Result<Together<'_>, SubmitError> {
        Together::embeddings(self, params)
    }

    /// Whether another request would be taken now, for whoever has work to do before there is one.
    ///
    /// # Errors
    /// The queue is full, or the engine takes no more.
    pub fn check_room(&self) -> Result<(), SubmitError> {
        self.mailbox.check_room()
    }

    /// Ends a request before the next step; its stream says so with
    /// [`FinishReason::Abort`]. Nothing happens if it is over.
    pub fn abort(&self, id: RequestId) {
        self.mailbox.end_request(id, FinishReason::Abort);
    }

    /// Takes no more requests and ends when those it has are answered.
    pub fn drain(&self) {
        self.mailbox.end(Ending::Drain);
    }

    /// Takes no more requests, aborts all it has, and ends.
    pub fn stop(&self) {
        self.mailbox.end(Ending::Stop);
    }

    /// Resolves when the engine has ended and all streams have what they will get.
    ///
    /// # Errors
    /// It ended because it could not go on.
    pub async fn closed(&self) -> Result<(), StreamError> {
        std::future::poll_fn(|cx| self.mailbox.poll_closed(cx)).await
    }

    /// Whether it can compute.
    pub fn health(&self) -> Health {
        self.mailbox.health()
    }

    /// What it has to do.
    pub fn load(&self) -> Load {
        self.mailbox.load()
    }

    /// The last steps it finished, for as long as it keeps them; none where steps are not predicted. Waits
    /// for nothing.
    pub fn steps(&self) -> LastSteps {
        self.mailbox.steps()
    }

    /// What it counts and times, as it stands between two steps, and beside that whether it can compute
    /// and what it has to do. Waits no longer than a step takes: while a lost device is replaced, and
    /// once the engine has ended, the counts are those of before.
    pub async fn metrics(&self) -> Vec<MetricFamily> {
        let (counts, health, load) = self.mailbox.ask_counts().await;
        vitals::with_counts(health, load, &counts)
    }

    /// The same as it was when somebody last [asked](Self::metrics), for whoever cannot wait until the step ends.
    pub fn last_metrics(&self) -> Vec<MetricFamily> {
        let (counts, health, load) = self.mailbox.counts();
        vitals::with_counts(health, load, &counts)
    }

    /// When the step began that it computes now, by the engine's clock. One that does not end says that the device
    /// hangs.
    pub fn step_began(&self) -> Option<Duration> {
        self.mailbox.step_began()
    }

    /// The tokenizer of its model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.last.tokenizer
    }
}
