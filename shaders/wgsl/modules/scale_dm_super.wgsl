// w = d s q - dmin m: s and m as bytes, two groups a word, then d and dmin as f16, a word a
// super-block of 8 groups. d s and dmin m are exact.
alias Scale = vec2<f32>;

fn scale_words(groups: u32) -> u32 {
  return ((groups + 1u) >> 1u) + ((groups + 7u) >> 3u);
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let at = scale_row(row, groups);
  let s = stream_half(at, group_order(groups, group));
  let d = unpack2x16float(ws[at + ((groups + 1u) >> 1u) + (group >> 3u)]);
  return vec2<f32>(d.x * f32(s & 255u), -(d.y * f32((s >> 8u) & 255u)));
}

// a + what a group adds, from its dot of codes and its sum of inputs.
fn group_add(a: f32, dot: f32, sum: f32, scale: Scale) -> f32 {
  return fma(scale.y, sum, fma(scale.x, dot, a));
}

fn widen4(codes: vec4<f32>, scale: Scale) -> vec4<f32> {
  return fma(vec4<f32>(scale.x), codes, vec4<f32>(scale.y));
}
