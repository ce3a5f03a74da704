// Keys that order as numbers do, as unsigned integers; both zeros are one.
fn order_key(x: f32) -> u32 {
  let bits = select(bitcast<u32>(x), 0u, x == 0.0);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn order_value(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}
