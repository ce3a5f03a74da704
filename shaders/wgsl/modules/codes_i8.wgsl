// Codes that are signed bytes, two chunks a group.
fn plane_words(groups: u32) -> u32 {
  return 0u;
}

fn signed_bytes(v: u32) -> vec4<f32> {
  let i = bitcast<i32>(v);
  return vec4<f32>(vec4<i32>((i << 24u) >> 24u, (i << 16u) >> 24u, (i << 8u) >> 24u, i >> 24u));
}

fn chunk(row: u32, groups: u32, group: u32, piece: u32) -> u32 {
  return row * 2u * groups + span_order(groups, 2u, 2u * (group & 3u) + piece, group >> 2u);
}

// The group's 32 codes.
fn group_codes(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let lo = w[chunk(row, groups, group, 0u)];
  let hi = w[chunk(row, groups, group, 1u)];
  return array<vec4<f32>, 8>(
    signed_bytes(lo.x), signed_bytes(lo.y), signed_bytes(lo.z), signed_bytes(lo.w),
    signed_bytes(hi.x), signed_bytes(hi.y), signed_bytes(hi.z), signed_bytes(hi.w));
}

// Codes 4 k4 .. 4 k4 + 3 of a row.
fn codes4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  return signed_bytes(w[chunk(row, groups, k4 >> 3u, (k4 >> 2u) & 1u)][k4 & 3u]);
}
