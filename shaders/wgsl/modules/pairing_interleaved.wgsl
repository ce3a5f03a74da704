// Rotary pair i is dimensions 2 i and 2 i + 1.
fn pair_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(2u * pair, 2u * pair + 1u);
}

// The pair of a dimension, and which of its two it is.
fn dim_pair(dim: u32, pairs: u32) -> vec2<u32> {
  return vec2(dim >> 1u, dim & 1u);
}

// Pairs `pair` and `pair + 1`: two neighbouring dimensions begin at the first number, two at the second.
fn two_pairs_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(2u * pair, 2u * pair + 2u);
}

// Those two pairs, as their dimensions lie.
fn two_pairs_turned(v: vec4<f32>, first: vec2<f32>, second: vec2<f32>) -> vec4<f32> {
  return vec4(turned(v.x, v.y, first), turned(v.z, v.w, second));
}
