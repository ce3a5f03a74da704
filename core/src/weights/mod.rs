//! Weights: sources of bytes, file formats, and the repacker into the device's layouts.
use thiserror::Error;
pub mod source;
/// Why a model file cannot be used.
#[derive(Debug, Error)]
pub enum WeightsError {}
