// Codes of 2 bits times the s of their half of the group: whole numbers; otherwise as codes_q2_k.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn second(v: u32, j: u32, s: f32) -> vec4<f32> {
  let q = (v >> (2u * j)) & 0x03030303u;
  return s * vec4<f32>(vec4<u32>(q & 255u, (q >> 8u) & 255u, (q >> 16u) & 255u, q >> 24u));
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let c = w[row * (groups >> 1u) + ((group >> 1u) & 1u) * (groups >> 2u) + (group >> 2u)];
  let q = select(c.xy, c.zw, (group & 1u) == 1u);
  let s = group_scale(row, groups, group).s;
  return array<vec4<f32>, 8>(
    second(q.x, 0u, s.x), second(q.x, 1u, s.x), second(q.x, 2u, s.x), second(q.x, 3u, s.x),
    second(q.y, 0u, s.y), second(q.y, 1u, s.y), second(q.y, 2u, s.y), second(q.y, 3u, s.y));
}
