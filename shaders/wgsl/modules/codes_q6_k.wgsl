// Codes of 6 bits less 32, times the scale of their half of the group: whole numbers. The lower
// four bits in one chunk a group (byte i: elements i and i + 16), the upper two in a plane, two
// words a group: element 16 h + 4 j + c at bits 8 c + 2 j of word h.
fn plane_words(groups: u32) -> u32 {
  return 2u * groups;
}

fn sixth(v: u32, plane: u32, j: u32, scale: f32) -> vec4<f32> {
  let q = (v & 0x0f0f0f0fu) | (((plane >> (2u * j)) & 0x03030303u) << 4u);
  let u = vec4<u32>(q & 255u, (q >> 8u) & 255u, (q >> 16u) & 255u, q >> 24u);
  return scale * (vec4<f32>(u) - 32.0);
}

fn plane_word(row: u32, groups: u32, group: u32, half: u32) -> u32 {
  let i = span_order(groups, 2u, 2u * (group & 3u) + half, group >> 2u);
  return ws[stream_row(row, groups) + i];
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let q = w[row * groups + group_order(groups, group)];
  let h = plane_word(row, groups, group, 0u);
  let i = plane_word(row, groups, group, 1u);
  let s = half_scales(row, groups, group);
  return array<vec4<f32>, 8>(
    sixth(q.x, h, 0u, s.x), sixth(q.y, h, 1u, s.x),
    sixth(q.z, h, 2u, s.x), sixth(q.w, h, 3u, s.x),
    sixth(q.x >> 4u, i, 0u, s.y), sixth(q.y >> 4u, i, 1u, s.y),
    sixth(q.z >> 4u, i, 2u, s.y), sixth(q.w >> 4u, i, 3u, s.y));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let group = k4 >> 3u;
  let q = w[row * groups + group_order(groups, group)];
  let s = half_scales(row, groups, group);
  let half = (k4 >> 2u) & 1u;
  return sixth(q[k4 & 3u] >> (k4 & 4u), plane_word(row, groups, group, half), k4 & 3u,
    select(s.x, s.y, half == 1u));
}
