//! How a runner is set up. Knows no device.

use crate::model::{ComputeDtype, KvCacheDtype, NumericsClass, Taps};

/// How a runner is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Bytes the model may take on the device; `None` where nobody knows.
    pub memory: Option<u64>,
    /// How matmuls compute.
    pub compute_dtype: ComputeDtype,
    /// Type of cached keys and values.
    pub kv_cache_dtype: KvCacheDtype,
    /// Sequences with up to so many queries go to the decode kernel, at most [`DECODE_QUERIES`](super::model_runner::DECODE_QUERIES); `None`
    /// for what suits the device. No value changes a bit of the result.
    pub decode_queries: Option<usize>,
    /// What steps can record: it takes memory, and is recorded unless [`ModelRunner::record`](super::ModelRunner::record) says
    /// otherwise.
    pub taps: Taps,
}

impl RunnerOptions {
    /// In the exact class, with exact keys and values: what reference implementations give.
    pub fn exact() -> Self {
        Self {
            compute_dtype: ComputeDtype::Of(NumericsClass::F32),
            ..Self::default()
        }
    }
}
