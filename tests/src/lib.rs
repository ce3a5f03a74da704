//! Shared pieces of the tests that see the whole workspace.
