// Codes that are weights, d s q - dmin m: q of 2 bits in one chunk two groups, two words each
// (element 16 h + 4 j + c at bits 8 c + 2 j of word h); in the stream a byte a half group, s in its
// low four bits and m in the high, then d and dmin as f16, a word a super-block of 8 groups.
fn plane_words(groups: u32) -> u32 {
  return ((groups + 1u) >> 1u) + ((groups + 7u) >> 3u);
}

fn second(v: u32, j: u32, scale: vec2<f32>) -> vec4<f32> {
  let q = (v >> (2u * j)) & 0x03030303u;
  let u = vec4<u32>(q & 255u, (q >> 8u) & 255u, (q >> 16u) & 255u, q >> 24u);
  return fma(vec4<f32>(scale.x), vec4<f32>(u), vec4<f32>(scale.y));
}

fn words(row: u32, groups: u32, group: u32) -> vec2<u32> {
  let q = w[row * (groups >> 1u) + ((group >> 1u) & 1u) * (groups >> 2u) + (group >> 2u)];
  return select(q.xy, q.zw, (group & 1u) == 1u);
}

// (d s, - dmin m) of both halves.
fn half_scales(row: u32, groups: u32, group: u32) -> vec4<f32> {
  let at = stream_row(row, groups);
  let s = stream_half(at, group_order(groups, group));
  let d = unpack2x16float(ws[at + ((groups + 1u) >> 1u) + (group >> 3u)]);
  return vec4<f32>(d.x, -d.y, d.x, -d.y)
    * vec4<f32>(vec4<u32>(s & 15u, (s >> 4u) & 15u, (s >> 8u) & 15u, (s >> 12u) & 15u));
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let q = words(row, groups, group);
  let s = half_scales(row, groups, group);
  return array<vec4<f32>, 8>(
    second(q.x, 0u, s.xy), second(q.x, 1u, s.xy), second(q.x, 2u, s.xy), second(q.x, 3u, s.xy),
    second(q.y, 0u, s.zw), second(q.y, 1u, s.zw), second(q.y, 2u, s.zw), second(q.y, 3u, s.zw));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let group = k4 >> 3u;
  let q = words(row, groups, group);
  let s = half_scales(row, groups, group);
  let upper = (k4 & 4u) == 4u;
  return second(select(q.x, q.y, upper), k4 & 3u, select(s.xy, s.zw, upper));
}
