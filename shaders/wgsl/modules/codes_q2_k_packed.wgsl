// Codes of 2 bits, four a word; as codes_q2_k but without scales.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn seconds(v: u32) -> vec4<u32> {
  return (vec4<u32>(v) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  let q = w[row * (groups >> 1u) + ((group >> 1u) & 1u) * (groups >> 2u) + (group >> 2u)];
  let words = select(q.xy, q.zw, (group & 1u) == 1u);
  return array<vec4<u32>, 2>(seconds(words.x), seconds(words.y));
}
