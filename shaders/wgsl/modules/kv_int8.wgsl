// Reads pages of int8. A kernel that uses this module has `kcache` and `vcache`.
alias KvWord = u32;

fn signed_bytes(v: u32) -> vec4<f32> {
  let i = bitcast<i32>(v);
  return vec4<f32>(vec4<i32>((i << 24u) >> 24u, (i << 16u) >> 24u, (i << 8u) >> 24u, i >> 24u));
}

// Half `at` of the pages, of the word it lies in.
fn half_of(word: u32, at: u32) -> f32 { return unpack2x16float(word >> (16u * (at & 1u))).x; }

// Codes of four dims of a row, and what they are times.
fn key4(row: KvRow, i: u32) -> vec4<f32> { return signed_bytes(kcache[row.x + i]); }
fn key_scale(row: KvRow, i: u32) -> f32 {
  let at = row.y + i / 8u;
  return half_of(kcache[at / 2u], at);
}
fn value4(row: KvRow, i: u32) -> vec4<f32> { return signed_bytes(vcache[row.x + i]); }
fn value_scale(row: KvRow, i: u32) -> f32 {
  let at = row.y + i / 8u;
  return half_of(vcache[at / 2u], at);
}
