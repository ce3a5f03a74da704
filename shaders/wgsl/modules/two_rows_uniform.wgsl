// 16 dims of two rows of keys or values, one after the other, four a row: every lane loads them all.
// `at` is the first vec4; the second row may hold anything. A kernel that uses this module has D4.
fn two_keys(row: KvRow, at: u32, lane: u32) -> array<vec4<f32>, 8> {
  let next = row + NEXT_ROW;
  return array<vec4<f32>, 8>(
    key4(row, at), key4(row, in_row(at + 1u)), key4(row, in_row(at + 2u)), key4(row, in_row(at + 3u)),
    key4(next, at), key4(next, in_row(at + 1u)), key4(next, in_row(at + 2u)),
    key4(next, in_row(at + 3u)));
}

fn two_values(row: KvRow, at: u32, lane: u32) -> array<vec4<f32>, 8> {
  let next = row + NEXT_ROW;
  return array<vec4<f32>, 8>(
    value4(row, at), value4(row, in_row(at + 1u)), value4(row, in_row(at + 2u)),
    value4(row, in_row(at + 3u)), value4(next, at), value4(next, in_row(at + 1u)),
    value4(next, in_row(at + 2u)), value4(next, in_row(at + 3u)));
}
