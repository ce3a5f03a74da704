//! Every kernel on the device under test against its reference, on random inputs and odd shapes.

#![allow(missing_docs, reason = "a test binary has no public surface")]

mod residual;
mod rms_norm;
