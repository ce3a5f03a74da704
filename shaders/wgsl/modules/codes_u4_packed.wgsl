// Codes of 4 bits, four a word; as codes_u4.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  let q = w[row * groups + group_order(groups, group)];
  let mask = vec4<u32>(0x0f0f0f0fu);
  return array<vec4<u32>, 2>(q & mask, (q >> vec4<u32>(4u)) & mask);
}
