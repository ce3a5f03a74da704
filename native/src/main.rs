//! The `twoclock` command line. Owns argument parsing and nothing of the engine.
fn main() {}
