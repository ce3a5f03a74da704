// Reads pages of f16. A kernel that uses this module has `kcache` and `vcache`.
alias KvWord = vec2<u32>;

fn halves4(v: vec2<u32>) -> vec4<f32> {
  return vec4(unpack2x16float(v.x), unpack2x16float(v.y));
}

// Codes of four dims of a row, and what they are times.
fn key4(row: KvRow, i: u32) -> vec4<f32> { return halves4(kcache[row + i]); }
fn key_scale(row: KvRow, i: u32) -> f32 { return 1.0; }
fn value4(row: KvRow, i: u32) -> vec4<f32> { return halves4(vcache[row + i]); }
fn value_scale(row: KvRow, i: u32) -> f32 { return 1.0; }
