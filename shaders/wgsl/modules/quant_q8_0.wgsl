// Q8_0: w = d q; a signed byte an element, two chunks a group, d as f16, two groups a word, rows
// padded to whole words.
fn signed_bytes(v: u32) -> vec4<f32> {
  let i = bitcast<i32>(v);
  return vec4<f32>(vec4<i32>((i << 24u) >> 24u, (i << 16u) >> 24u, (i << 8u) >> 24u, i >> 24u));
}

fn chunk(row: u32, groups: u32, group: u32, piece: u32) -> u32 {
  return row * 2u * groups + span_order(groups, 2u, 2u * (group & 3u) + piece, group >> 2u);
}

// The group's 32 codes.
fn group_weights(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let lo = w[chunk(row, groups, group, 0u)];
  let hi = w[chunk(row, groups, group, 1u)];
  return array<vec4<f32>, 8>(
    signed_bytes(lo.x), signed_bytes(lo.y), signed_bytes(lo.z), signed_bytes(lo.w),
    signed_bytes(hi.x), signed_bytes(hi.y), signed_bytes(hi.z), signed_bytes(hi.w));
}

fn group_scale(row: u32, groups: u32, group: u32) -> vec2<f32> {
  let i = span_order(groups, 1u, group & 3u, group >> 2u);
  let d = unpack2x16float(ws[row * ((groups + 1u) >> 1u) + (i >> 1u)] >> (16u * (i & 1u))).x;
  return vec2<f32>(d, 0.0);
}

// a + what a group adds, from its dot of codes.
fn group_add(a: f32, dot: f32, sum: f32, scale: vec2<f32>) -> f32 {
  return fma(scale.x, dot, a);
}

// Elements 4 k4 .. 4 k4 + 3 of a row.
fn dequant4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let group = k4 >> 3u;
  let codes = signed_bytes(w[chunk(row, groups, group, (k4 >> 2u) & 1u)][k4 & 3u]);
  return group_scale(row, groups, group).x * codes;
}
