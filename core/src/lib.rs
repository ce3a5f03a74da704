//! The Twoclock engine: from text to tokens and back, on whatever executor it is given.
//!
//! Owns scheduling, paged key/value memory, models, sampling and text. Knows no graphics API, no
//! file system, no thread and no clock of the host: devices come in as an
//! [`Executor`](twoclock_shaders::executor::Executor), bytes as a [`weights::source::ByteSource`],
//! time as a [`clock::Clock`].
//!
//! Modules import only from modules before them:
//! `types error config clock` < `sched | sample | text | weights` < `model` < `runner` < `engine`
//! < `chat`.

pub mod clock;
pub mod config;
pub mod error;
pub mod types;

pub mod sample;
pub mod sched;
pub mod text;
pub mod weights;

pub mod model;
pub mod runner;

pub mod engine;

pub mod chat;
