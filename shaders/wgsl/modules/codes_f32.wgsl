// Codes that are singles, eight chunks a group.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn chunk(row: u32, groups: u32, group: u32, piece: u32) -> vec4<f32> {
  let i = row * 8u * groups + span_order(groups, 8u, 8u * (group & 3u) + piece, group >> 2u);
  return bitcast<vec4<f32>>(w[i]);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    chunk(row, groups, group, 0u), chunk(row, groups, group, 1u),
    chunk(row, groups, group, 2u), chunk(row, groups, group, 3u),
    chunk(row, groups, group, 4u), chunk(row, groups, group, 5u),
    chunk(row, groups, group, 6u), chunk(row, groups, group, 7u));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  return chunk(row, groups, k4 >> 3u, k4 & 7u);
}
