// Codes of 3 bits less 4, four a word; as codes_q3_k but without scales.
fn plane_words(groups: u32) -> u32 {
  return groups;
}

fn thirds(v: u32, plane: u32) -> vec4<u32> {
  let low = (vec4<u32>(v) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u);
  let top = (vec4<u32>(plane) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(0x01010101u);
  // Each byte less 4: no byte borrows from the next.
  return ((low | (top << vec4<u32>(2u)) | vec4<u32>(0x80808080u)) - vec4<u32>(0x04040404u))
    ^ vec4<u32>(0x80808080u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  let q = w[row * (groups >> 1u) + ((group >> 1u) & 1u) * (groups >> 2u) + (group >> 2u)];
  let words = select(q.xy, q.zw, (group & 1u) == 1u);
  let h = ws[stream_row(row, groups) + group_order(groups, group)];
  return array<vec4<u32>, 2>(thirds(words.x, h), thirds(words.y, h >> 4u));
}
