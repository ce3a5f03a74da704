// Writes two dimensions, the first of them even, into pages of f32. A kernel that uses this module has
// `kcache` and `vcache`.
fn store_key2(at: u32, v: vec2<f32>) {
  kcache[at] = bitcast<u32>(v.x);
  kcache[at + 1u] = bitcast<u32>(v.y);
}

fn store_value2(at: u32, v: vec2<f32>) {
  vcache[at] = bitcast<u32>(v.x);
  vcache[at + 1u] = bitcast<u32>(v.y);
}
