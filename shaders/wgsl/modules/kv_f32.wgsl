// Reads pages of f32. A kernel that uses this module has `kcache` and `vcache`.
alias KvWord = vec4<f32>;

// Codes of four dims of a row, and what they are times.
fn key4(row: KvRow, i: u32) -> vec4<f32> { return kcache[row + i]; }
fn key_scale(row: KvRow, i: u32) -> f32 { return 1.0; }
fn value4(row: KvRow, i: u32) -> vec4<f32> { return vcache[row + i]; }
fn value_scale(row: KvRow, i: u32) -> f32 { return 1.0; }
