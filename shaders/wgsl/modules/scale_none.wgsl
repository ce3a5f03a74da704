// No scales: codes are weights.
alias Scale = vec2<f32>;

fn scale_words(groups: u32) -> u32 {
  return 0u;
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  return vec2<f32>();
}

// a + what a group adds: its dot.
fn group_add(a: f32, dot: f32, sum: f32, scale: Scale) -> f32 {
  return a + dot;
}

fn widen4(codes: vec4<f32>, scale: Scale) -> vec4<f32> {
  return codes;
}
