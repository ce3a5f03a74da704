//! `twoclock serve`: what it answers, how it treats clients, and how it ends.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

mod answers;
mod calls;
mod dialects;
mod doors;
mod endings;
mod faults;
mod log;
mod manners;
mod metrics;
mod models;
mod offers;
mod protocols;
mod reading;
mod records;
mod scene;
mod shapes;
mod signals;
mod spans;
mod unread;
mod wrong_fields;
