// Codes of 4 bits, one chunk a group: byte i holds elements i and i + 16.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn nibbles(v: u32) -> vec4<f32> {
  return vec4<f32>(vec4<u32>(v & 15u, (v >> 8u) & 15u, (v >> 16u) & 15u, (v >> 24u) & 15u));
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let q = w[row * groups + group_order(groups, group)];
  return array<vec4<f32>, 8>(
    nibbles(q.x), nibbles(q.y), nibbles(q.z), nibbles(q.w),
    nibbles(q.x >> 4u), nibbles(q.y >> 4u), nibbles(q.z >> 4u), nibbles(q.w >> 4u));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let q = w[row * groups + group_order(groups, k4 >> 3u)];
  return nibbles(q[k4 & 3u] >> (k4 & 4u));
}
