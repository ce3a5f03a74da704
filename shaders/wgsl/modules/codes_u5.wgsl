// Codes of 5 bits: the lower four in one chunk a group (byte i: elements i and i + 16), the fifth
// in a plane, a word a group: element 4 j + c at bit 8 c + j.
fn plane_words(groups: u32) -> u32 {
  return groups;
}

fn fifth(v: u32, plane: u32, j: u32) -> vec4<f32> {
  let q = (v & 0x0f0f0f0fu) | (((plane >> j) & 0x01010101u) << 4u);
  return vec4<f32>(vec4<u32>(q & 255u, (q >> 8u) & 255u, (q >> 16u) & 255u, q >> 24u));
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let i = group_order(groups, group);
  let q = w[row * groups + i];
  let h = ws[stream_row(row, groups) + i];
  return array<vec4<f32>, 8>(
    fifth(q.x, h, 0u), fifth(q.y, h, 1u), fifth(q.z, h, 2u), fifth(q.w, h, 3u),
    fifth(q.x >> 4u, h, 4u), fifth(q.y >> 4u, h, 5u),
    fifth(q.z >> 4u, h, 6u), fifth(q.w >> 4u, h, 7u));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let i = group_order(groups, k4 >> 3u);
  let q = w[row * groups + i];
  return fifth(q[k4 & 3u] >> (k4 & 4u), ws[stream_row(row, groups) + i], k4 & 7u);
}
