//! The crate's error: what went wrong, where, and what to do. Each layer has its own variant so
//! that a caller can tell a bad file from a full device.

use thiserror::Error;

pub use twoclock_shaders::executor::ExecutorError;

/// Anything the engine refuses or fails at.
#[derive(Debug, Error)]
pub enum Error {
    /// A model file cannot be used.
    #[error(transparent)]
    Weights(#[from] crate::weights::WeightsError),
    /// A tokenizer or chat template cannot be used.
    #[error(transparent)]
    Text(#[from] crate::text::TextError),
    /// A request cannot be served.
    #[error(transparent)]
    Request(#[from] crate::sched::RequestError),
    /// The engine's limits allow nothing to run.
    #[error(transparent)]
    Config(#[from] crate::sched::ConfigError),
    /// Something is not recorded.
    #[error(transparent)]
    Taps(#[from] crate::model::TapsError),
    /// The device refused or was lost.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The device was lost, and there is no other to go on with.
    #[error("the device was lost, and {attempts} attempts to open another failed: {last}")]
    NoOtherDevice {
        /// How often it was tried.
        attempts: usize,
        /// What the last attempt met.
        last: Box<Error>,
    },
    /// The device cannot compute in the class that was asked for.
    #[error(transparent)]
    NoCoop(#[from] crate::model::NoCoop),
    /// The model does not fit, with the arithmetic.
    #[error("{0}")]
    DoesNotFit(String),
}

impl Error {
    /// Whether the device is gone, so that nothing on it is there any more.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Executor(ExecutorError::DeviceLost(_)))
    }
}

/// Result of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
