// A group of 32 as pieces of four singles: four accumulators over k mod 4, joined in pairs. Whole numbers
// whose sum stays under 2²⁴ are exact in any order.
alias Piece = vec4<f32>;
const PIECES = 8u;
alias Codes = array<vec4<f32>, 8>;

fn join4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn bytes4(v: u32) -> vec4<f32> {
  let i = bitcast<i32>(v);
  return vec4<f32>(vec4<i32>((i << 24u) >> 24u, (i << 16u) >> 24u, (i << 8u) >> 24u, i >> 24u));
}

// Inputs that are stored as bytes.
fn codes_of(a: vec4<u32>, b: vec4<u32>) -> Codes {
  return Codes(
    bytes4(a.x), bytes4(a.y), bytes4(a.z), bytes4(a.w),
    bytes4(b.x), bytes4(b.y), bytes4(b.z), bytes4(b.w));
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
