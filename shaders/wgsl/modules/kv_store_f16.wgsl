// Writes pages of f16. A kernel that uses this module has `qkv`, `kcache` and `vcache`.
alias KvWord = vec2<u32>;

// Vectors of four dims an invocation stores.
const STORE4 = 1u;

fn halves4(v: vec4<f32>) -> vec2<u32> {
  return vec2(half_bits(v.x) | (half_bits(v.y) << 16u), half_bits(v.z) | (half_bits(v.w) << 16u));
}

// Those from vector `at` of a row on, from the key at `k` and the value at `v`.
fn kv_store(row: KvRow, at: u32, k: u32, v: u32) {
  kcache[row + at] = halves4(qkv[k]);
  vcache[row + at] = halves4(qkv[v]);
}
