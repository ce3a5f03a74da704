// 16 dims of two rows of keys or values, one after the other, four a row: eight lanes load a vec4 each
// and tell the others. `at` is the first vec4; the second row may hold anything. Needs subgroups of 8
// or more whose lanes are consecutive, all active, and in step, and rows of whole pieces of 16.
// enable: subgroups
fn all_eight(x: vec4<f32>) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u),
    subgroupBroadcast(x, 3u), subgroupBroadcast(x, 4u), subgroupBroadcast(x, 5u),
    subgroupBroadcast(x, 6u), subgroupBroadcast(x, 7u));
}

fn row_of(row: KvRow, lane: u32) -> KvRow { return row + NEXT_ROW * ((lane >> 2u) & 1u); }

fn two_keys(row: KvRow, at: u32, lane: u32) -> array<vec4<f32>, 8> {
  return all_eight(key4(row_of(row, lane), at + (lane & 3u)));
}

fn two_values(row: KvRow, at: u32, lane: u32) -> array<vec4<f32>, 8> {
  return all_eight(value4(row_of(row, lane), at + (lane & 3u)));
}
