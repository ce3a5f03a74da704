// Codes of 16 bits, two a word, four chunks a group; the scale module widens a word's pair.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn chunk(row: u32, groups: u32, group: u32, piece: u32) -> vec4<u32> {
  return w[row * 4u * groups + span_order(groups, 4u, 4u * (group & 3u) + piece, group >> 2u)];
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let a = chunk(row, groups, group, 0u);
  let b = chunk(row, groups, group, 1u);
  let c = chunk(row, groups, group, 2u);
  let d = chunk(row, groups, group, 3u);
  return array<vec4<f32>, 8>(
    vec4<f32>(pair(a.x), pair(a.y)), vec4<f32>(pair(a.z), pair(a.w)),
    vec4<f32>(pair(b.x), pair(b.y)), vec4<f32>(pair(b.z), pair(b.w)),
    vec4<f32>(pair(c.x), pair(c.y)), vec4<f32>(pair(c.z), pair(c.w)),
    vec4<f32>(pair(d.x), pair(d.y)), vec4<f32>(pair(d.z), pair(d.w)));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let v = chunk(row, groups, k4 >> 3u, (k4 >> 1u) & 3u);
  let words = select(v.xy, v.zw, (k4 & 1u) == 1u);
  return vec4<f32>(pair(words.x), pair(words.y));
}
