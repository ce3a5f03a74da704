// The chain of chain_int8_q2_k over four codes a word. A piece is sixteen elements.
alias Piece = vec4<u32>;
const PIECES = 2u;
alias Codes = array<vec4<u32>, 2>;
alias Partial = vec2<i32>;
// Of a group's inputs: scale, scale · Σ codes, and Σ codes of either half.
alias Sums = vec4<f32>;

struct Input {
  x: Codes,
  s: Sums,
}

fn input_sums(v: vec4<u32>) -> Sums {
  let halves = bitcast<i32>(v.z);
  return vec4<f32>(bitcast<f32>(v.x), bitcast<f32>(v.y), f32((halves << 16u) >> 16u), f32(halves >> 16u));
}

fn input_of(a: vec4<u32>, b: vec4<u32>, s: vec4<u32>) -> Input {
  return Input(array<vec4<u32>, 2>(a, b), input_sums(s));
}

fn dot16(q: vec4<u32>, x: vec4<u32>) -> i32 {
  return (dot4I8Packed(q.x, x.x) + dot4I8Packed(q.y, x.y)) + (dot4I8Packed(q.z, x.z) + dot4I8Packed(q.w, x.w));
}

// A partial sum, which begins at zero, and a piece.
fn piece_add(p: Partial, piece: u32, q: Piece, x: Piece) -> Partial {
  let d = dot16(q, x);
  return p + select(vec2<i32>(d, 0), vec2<i32>(0, d), piece == 1u);
}

// a and a group, whose partial sum this is.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  let dot = fma(scale.s.x, f32(p.x), scale.s.y * f32(p.y));
  let a1 = fma(scale.d * s.x, dot, a);
  return fma(scale.dmin * s.x, fma(scale.m.x, s.z, scale.m.y * s.w), a1);
}

// a and a group.
fn group_term(a: f32, q: Codes, x: Input, scale: Scale) -> f32 {
  return group_close(a, piece_add(piece_add(Partial(), 0u, q[0], x.x[0]), 1u, q[1], x.x[1]), x.s, scale);
}
