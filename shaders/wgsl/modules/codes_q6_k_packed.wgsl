// Codes of 6 bits less 32, four a word; as codes_q6_k but without scales.
fn plane_words(groups: u32) -> u32 {
  return 2u * groups;
}

fn plane_word(row: u32, groups: u32, group: u32, half: u32) -> u32 {
  let i = span_order(groups, 2u, 2u * (group & 3u) + half, group >> 2u);
  return ws[stream_row(row, groups) + i];
}

fn sixths(q: vec4<u32>, plane: u32) -> vec4<u32> {
  let top = (vec4<u32>(plane) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u);
  let u = (q & vec4<u32>(0x0f0f0f0fu)) | (top << vec4<u32>(4u));
  // Each byte less 32: no byte borrows from the next.
  return ((u | vec4<u32>(0x80808080u)) - vec4<u32>(0x20202020u)) ^ vec4<u32>(0x80808080u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  let q = w[row * groups + group_order(groups, group)];
  return array<vec4<u32>, 2>(
    sixths(q, plane_word(row, groups, group, 0u)),
    sixths(q >> vec4<u32>(4u), plane_word(row, groups, group, 1u)));
}
