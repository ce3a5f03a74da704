// w = d q: d as f16, two groups a word, rows padded to whole words.
alias Scale = vec2<f32>;

fn scale_words(groups: u32) -> u32 {
  return (groups + 1u) >> 1u;
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let half = stream_half(scale_row(row, groups), group_order(groups, group));
  return vec2<f32>(unpack2x16float(half).x, 0.0);
}

// a + what a group adds, from its dot of codes.
fn group_add(a: f32, dot: f32, sum: f32, scale: Scale) -> f32 {
  return fma(scale.x, dot, a);
}

fn widen4(codes: vec4<f32>, scale: Scale) -> vec4<f32> {
  return scale.x * codes;
}
