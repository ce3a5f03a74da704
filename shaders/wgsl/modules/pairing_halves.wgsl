// Rotary pair i is dimensions i and i + pairs.
fn pair_dims(pair: u32, pairs: u32) -> vec2<u32> {
  return vec2(pair, pair + pairs);
}
