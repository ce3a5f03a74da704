// Rotary pair i is dimensions i and i + pairs.
fn pair_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(pair, pair + pairs);
}

// The pair of a dimension, and which of its two it is.
fn dim_pair(dim: u32, pairs: u32) -> vec2<u32> {
  let second = u32(dim >= pairs);
  return vec2(dim - second * pairs, second);
}

// Pairs `pair` and `pair + 1`: two neighbouring dimensions begin at the first number, two at the second.
fn two_pairs_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(pair, pair + pairs);
}

// Those two pairs, as their dimensions lie.
fn two_pairs_turned(v: vec4<f32>, first: vec2<f32>, second: vec2<f32>) -> vec4<f32> {
  let a = turned(v.x, v.z, first);
  let b = turned(v.y, v.w, second);
  return vec4(a.x, b.x, a.y, b.y);
}
