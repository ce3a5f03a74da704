// A group of 32 as pieces of sixteen bytes, four a word.
alias Piece = vec4<u32>;
const PIECES = 2u;
alias Codes = array<vec4<u32>, 2>;

fn codes_of(a: vec4<u32>, b: vec4<u32>) -> Codes { return Codes(a, b); }

fn dot16(q: vec4<u32>, x: vec4<u32>) -> i32 {
  return (dot4I8Packed(q.x, x.x) + dot4I8Packed(q.y, x.y)) + (dot4I8Packed(q.z, x.z) + dot4I8Packed(q.w, x.w));
}

// a and a group.
fn group_term(a: f32, q: Codes, x: Input, scale: Scale) -> f32 {
  return group_close(a, piece_add(piece_add(Partial(), 0u, q[0], x.x[0]), 1u, q[1], x.x[1]), x.s, scale);
}
