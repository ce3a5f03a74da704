// Writes pages of f32. A kernel that uses this module has `kcache`, `vcache`, `key4` and `value4`.
alias KvWord = vec4<f32>;

// Vectors of four dims an invocation stores.
const STORE4 = 1u;

// Those from vector `at` of a row on, of the key at `k`, turned by `turns`, and of the value at `v`.
fn kv_store(row: KvRow, at: u32, k: u32, v: u32, turns: u32) {
  kcache[row + at] = key4(k, at, turns);
  vcache[row + at] = value4(v, at);
}
