//! Scheduling: requests, the block pool and the decision what each step computes.
//!
//! Pure: no device, no text, no clock. There is no prefill phase and no decode phase; a request is
//! brought from `num_computed_tokens` to `num_tokens_with_spec`, and chunking and preemption by
//! recompute are this one rule.

mod beginning;
pub mod block_hash;
pub mod block_pool;
pub mod computed_blocks;
pub mod config;
pub mod cost_model;
pub mod error;
#[cfg(test)]
mod fake_model;
mod handed_out;
pub mod hardware;
mod integrity;
pub mod kv_cache_manager;
pub mod kv_group;
pub mod metrics;
pub mod model_shape;
pub mod output;
mod preemption;
pub mod rank;
pub mod request;
pub mod reservation;
pub mod scheduler;
#[cfg(test)]
mod scheduler_proptests;
#[cfg(test)]
mod scheduler_tests;
mod share;
#[cfg(test)]
mod sharing_tests;
mod step_budget;
pub mod step_load;
pub mod swap;
pub mod token_budget;
pub mod update;
#[cfg(test)]
mod waste_tests;

pub use block_hash::BlockHash;
pub use block_pool::{BlockId, BlockPool};
pub use config::{
    Batching, ConfigError, MAX_BATCHED_TOKENS, MAX_RUN_AHEAD, PreemptionMode, PrefillMode,
    SchedulerConfig,
};
pub use cost_model::{Bound, CostModel, StepCost};
pub use error::RequestError;
pub use hardware::{Hardware, HardwareError, PerRegime, Regime};
pub use kv_cache_manager::KvCacheManager;
pub use kv_group::KvGroupSpec;
pub use metrics::{CacheMetrics, KvUsage};
pub use model_shape::{ExpertShape, KvGroupShape, ModelShape};
pub use output::{
    BlockCopy, ModelRunnerOutput, PLACEHOLDER_TOKEN, PoolShare, ScheduledSequence, SchedulerOutput,
    SequenceOutput,
};
pub use rank::{Ahead, STEPS_A_PRIORITY};
pub use request::{Request, RequestStatus};
pub use reservation::Reservation;
pub use scheduler::Scheduler;
pub use step_load::{SequenceLoad, StepLoad};
pub use swap::{BlockTransfer, LinearPreemptionCost, MovedBlock, PreemptionCost};
pub use token_budget::{BudgetPolicy, PrefillDemand, RidgeBudget, ServiceLevel};
pub use update::RequestUpdate;
