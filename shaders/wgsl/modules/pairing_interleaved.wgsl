// Rotary pair i is dimensions 2 i and 2 i + 1.
fn pair_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(2u * pair, 2u * pair + 1u);
}

// The pair of a dimension, and which of its two it is.
fn dim_pair(dim: u32, pairs: u32) -> vec2<u32> {
  return vec2(dim >> 1u, dim & 1u);
}
