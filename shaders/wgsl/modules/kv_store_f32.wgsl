// Writes pages of f32. A kernel that uses this module has `qkv`, `kcache` and `vcache`.
alias KvWord = vec4<f32>;

// Vectors of four dims an invocation stores.
const STORE4 = 1u;

// Those from vector `at` of a row on, from the key at `k` and the value at `v`.
fn kv_store(row: KvRow, at: u32, k: u32, v: u32) {
  kcache[row + at] = qkv[k];
  vcache[row + at] = qkv[v];
}
