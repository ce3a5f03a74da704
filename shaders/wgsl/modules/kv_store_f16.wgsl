// Writes pages of f16. A kernel that uses this module has `kcache`, `vcache`, `key4` and `value4`.
alias KvWord = vec2<u32>;

// Vectors of four dims an invocation stores.
const STORE4 = 1u;

fn halves4(v: vec4<f32>) -> vec2<u32> {
  return vec2(half_bits(v.x) | (half_bits(v.y) << 16u), half_bits(v.z) | (half_bits(v.w) << 16u));
}

// Those from vector `at` of a row on, of the key at `k`, turned by `turns`, and of the value at `v`.
fn kv_store(row: KvRow, at: u32, k: u32, v: u32, turns: u32) {
  kcache[row + at] = halves4(key4(k, at, turns));
  vcache[row + at] = halves4(value4(v, at));
}
