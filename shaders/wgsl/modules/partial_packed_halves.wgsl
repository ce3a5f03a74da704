// A partial sum of packed pieces where the halves of a group have scales of their own, whole numbers:
// one for each.
alias Partial = vec2<i32>;

// A partial sum, which begins at zero, and a piece.
fn piece_add(p: Partial, piece: u32, q: Piece, x: Piece) -> Partial {
  let d = dot16(q, x);
  return p + select(vec2<i32>(d, 0), vec2<i32>(0, d), piece == 1u);
}

// The dot that a finished partial sum is.
fn partial_dot(p: Partial, scale: Scale) -> f32 {
  let s = code_scales(scale);
  return fma(s.x, f32(p.x), s.y * f32(p.y));
}
