// Codes of 5 bits, four a word; as codes_u5.
fn plane_words(groups: u32) -> u32 {
  return groups;
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  let i = group_order(groups, group);
  let q = w[row * groups + i];
  let h = vec4<u32>(ws[stream_row(row, groups) + i]);
  let mask = vec4<u32>(0x0f0f0f0fu);
  let one = vec4<u32>(0x01010101u);
  let j = vec4<u32>(0u, 1u, 2u, 3u);
  return array<vec4<u32>, 2>(
    (q & mask) | (((h >> j) & one) << vec4<u32>(4u)),
    ((q >> vec4<u32>(4u)) & mask) | (((h >> (j + 4u)) & one) << vec4<u32>(4u)));
}
