// Codes out of a table of 16 signed bytes, four a word; as codes_table.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn looked_up(v: u32) -> u32 {
  let n = vec4<u32>(v & 15u, (v >> 8u) & 15u, (v >> 16u) & 15u, (v >> 24u) & 15u);
  let odd = (n & vec4<u32>(4u)) != vec4<u32>();
  let low = select(vec4<u32>(TABLE_0), vec4<u32>(TABLE_1), odd);
  let high = select(vec4<u32>(TABLE_2), vec4<u32>(TABLE_3), odd);
  let words = select(low, high, n >= vec4<u32>(8u));
  let bytes = (words >> (8u * (n & vec4<u32>(3u)))) & vec4<u32>(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  let q = w[row * groups + group_order(groups, group)];
  return array<vec4<u32>, 2>(
    vec4<u32>(looked_up(q.x), looked_up(q.y), looked_up(q.z), looked_up(q.w)),
    vec4<u32>(looked_up(q.x >> 4u), looked_up(q.y >> 4u), looked_up(q.z >> 4u), looked_up(q.w >> 4u)));
}
