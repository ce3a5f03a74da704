//! Scheduling: requests, the block pool and the decision what each step computes.
use thiserror::Error;
/// Why a request cannot be served.
#[derive(Debug, Error)]
pub enum RequestError {}
