//! The engine: requests in, tokens and text out, one step after another.
//!
//! Owns the loop and its bookkeeping. Knows neither how a step is chosen (`sched`) nor how it is
//! computed (`runner`), no thread and no protocol.

mod awaited;
pub mod completion;
mod constraints;
pub mod core;
mod ending;
mod forms;
pub mod handle;
mod in_flight;
mod ledger;
pub mod llm;
pub mod metrics;
pub mod output;
pub mod output_processor;
mod pausing;
pub mod pooling;
pub mod recovery;
mod sampling_check;
pub mod step_costs;
mod warm_up;

#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod llm_tests;
#[cfg(test)]
mod paged_hash;
#[cfg(test)]
mod run_ahead_tests;

pub use self::core::{EngineCore, EngineOutput};
pub use completion::Completion;
pub use handle::{EngineDriver, EngineHandle, HandleOptions, RequestStream};
pub use llm::{LlmEngine, Prompt, TextCompletion};
pub use metrics::{EngineMetrics, KvSlotSeconds, RequestMetrics};
pub use output_processor::{OutputProcessor, RequestOutput};
pub use pooling::Embedding;
pub use recovery::{RetryPolicy, RunnerFactory};
pub use step_costs::{StepCosts, StepKind, StepRecord};
