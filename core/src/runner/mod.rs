//! Computing a step: the seam between the engine, which decides, and a model on a device, which
//! computes. Knows nothing of text or of requests beyond the share it is handed.

mod host_pages;
pub mod input_batch;
pub mod memory_plan;
pub mod model_runner;
pub mod program_cache;

pub use memory_plan::MemoryPlan;
pub use model_runner::{ModelRunner, RunnerOptions};

use crate::error::Result;
use crate::sched::{ModelRunnerOutput, SchedulerOutput};

/// One step's computation, as the engine sees it.
///
/// Not `Send`: natively one thread drives an engine, in the browser a worker.
#[allow(
    async_fn_in_trait,
    reason = "an engine and its executor stay on one thread, so no Send bound is wanted"
)]
pub trait ExecuteModel {
    /// Runs the step; outputs come in the order of `output.scheduled`.
    ///
    /// # Errors
    /// What concerns one sequence goes into its [`error`](crate::sched::SequenceOutput::error). An
    /// `Err` says that the whole step was not computed: the device failed or is lost. The same
    /// step may be asked for again.
    async fn execute_model(&mut self, output: &SchedulerOutput) -> Result<ModelRunnerOutput>;

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
