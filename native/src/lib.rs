//! What the `twoclock` program is made of: files and models on this machine, the network, and one
//! module a command. Knows the host; the engine in `twoclock-core` does not.

pub mod answer;
pub mod catalogue;
pub mod cli;
pub mod devices;
pub mod download;
pub mod files;
pub mod http;
pub mod index;
pub mod inspect;
pub mod interrupt;
pub mod pull;
pub mod report;
pub mod store;
