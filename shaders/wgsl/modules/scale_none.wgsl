// No scales: codes are weights.
fn scale_words(groups: u32) -> u32 {
  return 0u;
}

fn group_scale(row: u32, groups: u32, group: u32) -> vec2<f32> {
  return vec2<f32>();
}

// a + what a group adds: its dot.
fn group_add(a: f32, dot: f32, sum: f32, scale: vec2<f32>) -> f32 {
  return a + dot;
}

fn widen4(codes: vec4<f32>, scale: vec2<f32>) -> vec4<f32> {
  return codes;
}
