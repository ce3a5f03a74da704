// Codes of 3 bits less 4, times the scale of their half of the group: whole numbers. The lower two
// bits in one chunk two groups, two words each: element 16 h + 4 j + c at bits 8 c + 2 j of word h;
// the third in a plane, a word a group: element 4 j + c at bit 8 c + j.
fn plane_words(groups: u32) -> u32 {
  return groups;
}

fn third(v: u32, plane: u32, j: u32, scale: f32) -> vec4<f32> {
  let q = ((v >> (2u * (j & 3u))) & 0x03030303u) | (((plane >> j) & 0x01010101u) << 2u);
  let u = vec4<u32>(q & 255u, (q >> 8u) & 255u, (q >> 16u) & 255u, q >> 24u);
  return scale * (vec4<f32>(u) - 4.0);
}

fn words(row: u32, groups: u32, group: u32) -> vec2<u32> {
  let q = w[row * (groups >> 1u) + ((group >> 1u) & 1u) * (groups >> 2u) + (group >> 2u)];
  return select(q.xy, q.zw, (group & 1u) == 1u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let q = words(row, groups, group);
  let h = ws[stream_row(row, groups) + group_order(groups, group)];
  let s = half_scales(row, groups, group);
  return array<vec4<f32>, 8>(
    third(q.x, h, 0u, s.x), third(q.x, h, 1u, s.x), third(q.x, h, 2u, s.x), third(q.x, h, 3u, s.x),
    third(q.y, h, 4u, s.y), third(q.y, h, 5u, s.y), third(q.y, h, 6u, s.y), third(q.y, h, 7u, s.y));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let group = k4 >> 3u;
  let q = words(row, groups, group);
  let h = ws[stream_row(row, groups) + group_order(groups, group)];
  let s = half_scales(row, groups, group);
  let upper = (k4 & 4u) == 4u;
  return third(select(q.x, q.y, upper), h, k4 & 7u, select(s.x, s.y, upper));
}
