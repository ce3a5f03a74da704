//! Computing a step: the seam between the engine, which decides, and a model on a device, which
//! computes. Knows nothing of text or of requests beyond the share it is handed.

pub mod filters;
mod host_pages;
pub mod input_batch;
pub mod launched_step;
mod logit_changes;
pub mod memory_plan;
pub mod model_runner;
mod options;
mod pool_rows;
pub mod program_cache;
mod recorder;
mod state_slots;

pub use crate::model::{ComputeDtype, KvCacheDtype, NumericsClass};
pub use launched_step::LaunchedStep;
pub use memory_plan::MemoryPlan;
pub use model_runner::ModelRunner;
pub use options::RunnerOptions;

use crate::error::Result;
use crate::sched::{ModelRunnerOutput, SchedulerOutput};

/// Steps of a model, as the engine sees them: launched one after the other, finished in that order.
///
/// Not `Send`: natively one thread drives an engine, in the browser a worker.
#[allow(
    async_fn_in_trait,
    reason = "an engine and its executor stay on one thread, so no Send bound is wanted"
)]
pub trait ExecuteModel {
    /// A step that was launched: what is needed to finish it. Dropping it gives its outputs up, and
    /// nothing else.
    type Launched;

    /// Queues everything of a step on the device, what is read back included, and waits for nothing
    /// of it: the next step may be launched before this one is finished.
    ///
    /// # Errors
    /// The device failed or is lost; neither this step nor any that is not finished counts as
    /// computed. The same step may be asked for again.
    async fn launch_step(&mut self, output: &SchedulerOutput) -> Result<Self::Launched>;

    /// Waits for the oldest step that is not finished; outputs come in the order of its
    /// `output.scheduled`.
    ///
    /// # Errors
    /// What concerns one sequence goes into its [`error`](crate::sched::SequenceOutput::error). An
    /// `Err` is one of [`launch_step`](Self::launch_step)'s.
    async fn finish_step(&mut self, launched: Self::Launched) -> Result<ModelRunnerOutput>;

    /// The device is lost and nothing will be asked of this runner any more: it gives up what it holds
    /// there, so that another has room.
    fn release(&mut self) {}

    /// Bytes a block takes in all layers of each KV group; empty where the runner cannot move pages
    /// to the host and back.
    fn kv_block_bytes(&self) -> Vec<u64> {
        Vec::new()
    }

    /// What besides tokens decides the keys and values it computes: model, adapter, type of the
    /// cache, numerics class. Requests share blocks inside one engine only, so a runner of one model
    /// may say nothing.
    fn kv_fingerprint(&self) -> String {
        String::new()
    }
}
