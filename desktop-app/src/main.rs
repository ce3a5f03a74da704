//! The desktop chat app.
fn main() {}
