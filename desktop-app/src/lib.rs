//! The desktop chat app: what its windows show. `main.rs` opens them.

pub mod app;
