// Codes out of a table of 16 signed bytes (TABLE_0 .. TABLE_3, four a word), their indices of 4 bits
// in one chunk a group: byte i holds elements i and i + 16.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn looked_up(v: u32) -> vec4<f32> {
  let n = vec4<u32>(v & 15u, (v >> 8u) & 15u, (v >> 16u) & 15u, (v >> 24u) & 15u);
  let odd = (n & vec4<u32>(4u)) != vec4<u32>();
  let low = select(vec4<u32>(TABLE_0), vec4<u32>(TABLE_1), odd);
  let high = select(vec4<u32>(TABLE_2), vec4<u32>(TABLE_3), odd);
  let words = select(low, high, n >= vec4<u32>(8u));
  let bytes = bitcast<vec4<i32>>(words << (vec4<u32>(24u) - 8u * (n & vec4<u32>(3u))));
  return vec4<f32>(bytes >> vec4<u32>(24u));
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let q = w[row * groups + group_order(groups, group)];
  return array<vec4<f32>, 8>(
    looked_up(q.x), looked_up(q.y), looked_up(q.z), looked_up(q.w),
    looked_up(q.x >> 4u), looked_up(q.y >> 4u), looked_up(q.z >> 4u), looked_up(q.w >> 4u));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let q = w[row * groups + group_order(groups, k4 >> 3u)];
  return looked_up(q[k4 & 3u] >> (k4 & 4u));
}
