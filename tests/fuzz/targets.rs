//! The functions the targets call, as the tests have them. Knows nothing itself.

#[path = "../src/fuzz.rs"]
pub mod fuzz;
