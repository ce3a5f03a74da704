// Q4_0: w = d q - 8 d; 4 bits an element, one chunk a group (byte i: elements i and i + 16), d as
// f16, two groups a word, rows padded to whole words.
fn nibbles(v: u32) -> vec4<f32> {
  return vec4<f32>(vec4<u32>(v & 15u, (v >> 8u) & 15u, (v >> 16u) & 15u, (v >> 24u) & 15u));
}

// The group's 32 codes.
fn group_weights(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  let q = w[row * groups + span_order(groups, 1u, group & 3u, group >> 2u)];
  return array<vec4<f32>, 8>(
    nibbles(q.x), nibbles(q.y), nibbles(q.z), nibbles(q.w),
    nibbles(q.x >> 4u), nibbles(q.y >> 4u), nibbles(q.z >> 4u), nibbles(q.w >> 4u));
}

fn group_scale(row: u32, groups: u32, group: u32) -> vec2<f32> {
  let i = span_order(groups, 1u, group & 3u, group >> 2u);
  let d = unpack2x16float(ws[row * ((groups + 1u) >> 1u) + (i >> 1u)] >> (16u * (i & 1u))).x;
  return vec2<f32>(d, -8.0 * d);
}

// a + what a group adds, from its dot of codes and its sum of inputs.
fn group_add(a: f32, dot: f32, sum: f32, scale: vec2<f32>) -> f32 {
  return fma(scale.y, sum, fma(scale.x, dot, a));
}

// Elements 4 k4 .. 4 k4 + 3 of a row.
fn dequant4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  let group = k4 >> 3u;
  let q = w[row * groups + span_order(groups, 1u, group & 3u, group >> 2u)];
  let codes = nibbles(q[k4 & 3u] >> (k4 & 4u));
  let scale = group_scale(row, groups, group);
  return fma(vec4<f32>(scale.x), codes, vec4<f32>(scale.y));
}
