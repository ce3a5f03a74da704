// Codes that are signed bytes, four a word; as codes_i8.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn chunk(row: u32, groups: u32, group: u32, piece: u32) -> u32 {
  return row * 2u * groups + span_order(groups, 2u, 2u * (group & 3u) + piece, group >> 2u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<u32>, 2> {
  return array<vec4<u32>, 2>(w[chunk(row, groups, group, 0u)], w[chunk(row, groups, group, 1u)]);
}
