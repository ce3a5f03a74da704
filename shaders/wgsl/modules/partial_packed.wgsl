// A partial sum of packed pieces: one for both halves of the group.
alias Partial = i32;

// A partial sum, which begins at zero, and a piece.
fn piece_add(p: Partial, piece: u32, q: Piece, x: Piece) -> Partial {
  return p + dot16(q, x);
}

// The dot that a finished partial sum is.
fn partial_dot(p: Partial, scale: Scale) -> f32 { return f32(p); }
