//! The one interface between the engine and a device.
use thiserror::Error;
/// What a device refuses or fails at.
#[derive(Debug, Error)]
pub enum ExecutorError {}
