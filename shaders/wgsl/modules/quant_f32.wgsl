// F32: singles, eight chunks a group; no scales.
fn chunk(row: u32, groups: u32, group: u32, piece: u32) -> vec4<f32> {
  let i = row * 8u * groups + span_order(groups, 8u, 8u * (group & 3u) + piece, group >> 2u);
  return bitcast<vec4<f32>>(w[i]);
}

// The group's 32 weights.
fn group_weights(row: u32, groups: u32, group: u32) -> array<vec4<f32>, 8> {
  return array<vec4<f32>, 8>(
    chunk(row, groups, group, 0u), chunk(row, groups, group, 1u),
    chunk(row, groups, group, 2u), chunk(row, groups, group, 3u),
    chunk(row, groups, group, 4u), chunk(row, groups, group, 5u),
    chunk(row, groups, group, 6u), chunk(row, groups, group, 7u));
}

fn group_scale(row: u32, groups: u32, group: u32) -> vec2<f32> {
  return vec2<f32>();
}

// a + what a group adds: its dot.
fn group_add(a: f32, dot: f32, sum: f32, scale: vec2<f32>) -> f32 {
  return a + dot;
}

// Elements 4 k4 .. 4 k4 + 3 of a row.
fn dequant4(row: u32, groups: u32, k4: u32) -> vec4<f32> {
  return chunk(row, groups, k4 >> 3u, k4 & 7u);
}
