//! What an engine counts and times: of each request, of the KV cache, and of everything since it
//! began. Plain data: knows no clock (moments come in as time since the clock's own beginning), no
//! protocol and no text format.

pub mod engine;
pub mod family;
pub mod histogram;
pub mod kv;
pub mod names;
pub mod request;

pub use engine::EngineMetrics;
pub use family::{MetricFamily, MetricValue};
pub use histogram::Histogram;
pub use kv::KvSlotSeconds;
pub use names::EngineGauges;
pub use request::{RequestMetrics, RequestShape};
