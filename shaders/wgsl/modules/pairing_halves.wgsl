// Rotary pair i is dimensions i and i + pairs.
fn pair_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(pair, pair + pairs);
}

// The pair of a dimension, and which of its two it is.
fn dim_pair(dim: u32, pairs: u32) -> vec2<u32> {
  let second = u32(dim >= pairs);
  return vec2(dim - second * pairs, second);
}
