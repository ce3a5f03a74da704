// Writes two dimensions, the first of them even, into pages of f16. A kernel that uses this module has
// `kcache` and `vcache`.
fn halves2(v: vec2<f32>) -> u32 {
  return half_bits(v.x) | (half_bits(v.y) << 16u);
}

fn store_key2(at: u32, v: vec2<f32>) { kcache[at / 2u] = halves2(v); }

fn store_value2(at: u32, v: vec2<f32>) { vcache[at / 2u] = halves2(v); }
