// The chain inside a group of 32 over singles: four accumulators over k mod 4, joined in pairs. A
// piece is four elements.
alias Piece = vec4<f32>;
const PIECES = 8u;
alias Codes = array<vec4<f32>, 8>;
alias Partial = vec4<f32>;
// The sum of a group's inputs.
alias Sums = f32;

struct Input {
  x: Codes,
  s: Sums,
}

fn join4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn input_of(x: Codes) -> Input {
  var s = vec4<f32>() + x[0];
  s += x[1];
  s += x[2];
  s += x[3];
  s += x[4];
  s += x[5];
  s += x[6];
  s += x[7];
  return Input(x, join4(s));
}

// A partial sum, which begins at zero, and a piece.
fn piece_add(p: Partial, piece: u32, q: Piece, x: Piece) -> Partial {
  return fma(q, x, p);
}

// a and a group, whose partial sum this is.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  return group_add(a, join4(p), s, scale);
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
