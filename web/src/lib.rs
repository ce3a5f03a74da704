//! The browser skin of the engine.
