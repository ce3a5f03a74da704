// A partial sum of pieces of singles: one for each k mod 4.
alias Partial = vec4<f32>;

// A partial sum, which begins at zero, and a piece.
fn piece_add(p: Partial, piece: u32, q: Piece, x: Piece) -> Partial {
  return fma(q, x, p);
}

// The dot that a finished partial sum is.
fn partial_dot(p: Partial, scale: Scale) -> f32 { return join4(p); }
