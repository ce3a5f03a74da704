// The chain inside a group of 32, integer class, for Q2_K: as chain_int8, and the offset's dot of the
// halves' m and Σ codes is one of whole numbers too. A piece is four elements.
alias Piece = vec4<f32>;
const PIECES = 8u;
alias Codes = array<vec4<f32>, 8>;
alias Partial = vec4<f32>;
// Of a group's inputs: scale, scale · Σ codes, and Σ codes of either half.
alias Sums = vec4<f32>;

struct Input {
  x: Codes,
  s: Sums,
}

fn join4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn input_bytes(v: u32) -> vec4<f32> {
  let i = bitcast<i32>(v);
  return vec4<f32>(vec4<i32>((i << 24u) >> 24u, (i << 16u) >> 24u, (i << 8u) >> 24u, i >> 24u));
}

fn input_sums(v: vec4<u32>) -> Sums {
  let halves = bitcast<i32>(v.z);
  return vec4<f32>(bitcast<f32>(v.x), bitcast<f32>(v.y), f32((halves << 16u) >> 16u), f32(halves >> 16u));
}

fn input_of(a: vec4<u32>, b: vec4<u32>, s: vec4<u32>) -> Input {
  return Input(
    array<vec4<f32>, 8>(
      input_bytes(a.x), input_bytes(a.y), input_bytes(a.z), input_bytes(a.w),
      input_bytes(b.x), input_bytes(b.y), input_bytes(b.z), input_bytes(b.w)),
    input_sums(s));
}

// A partial sum, which begins at zero, and a piece.
fn piece_add(p: Partial, piece: u32, q: Piece, x: Piece) -> Partial {
  return fma(q, x, p);
}

// a and a group, whose partial sum this is.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  let a1 = fma(scale.d * s.x, join4(p), a);
  return fma(scale.dmin * s.x, fma(scale.m.x, s.z, scale.m.y * s.w), a1);
}

// a and a group.
fn group_term(a: f32, q: Codes, x: Input, scale: Scale) -> f32 {
  var p = fma(q[0], x.x[0], vec4<f32>());
  p = fma(q[1], x.x[1], p);
  p = fma(q[2], x.x[2], p);
  p = fma(q[3], x.x[3], p);
  p = fma(q[4], x.x[4], p);
  p = fma(q[5], x.x[5], p);
  p = fma(q[6], x.x[6], p);
  p = fma(q[7], x.x[7], p);
  return group_close(a, p, x.s, scale);
}
