//! How far a call of a tool came by a character of its text, in whatever syntax.

/// What a character brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More must come.
    Going,
    /// With it the call is whole.
    Whole,
    /// It cannot stand here; it is not taken in.
    Wrong,
}
