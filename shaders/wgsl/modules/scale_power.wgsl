// w = 2^(e - 128) q: e as bytes, a span of four groups a word.
alias Scale = vec2<f32>;

fn scale_words(groups: u32) -> u32 {
  return (groups + 3u) >> 2u;
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let e = (ws[scale_row(row, groups) + (group >> 2u)] >> (8u * (group & 3u))) & 255u;
  let bits = select((e - 1u) << 23u, 0x00200000u << e, e < 2u);
  return vec2<f32>(bitcast<f32>(bits), 0.0);
}

// a + what a group adds, from its dot of codes.
fn group_add(a: f32, dot: f32, sum: f32, scale: Scale) -> f32 {
  return fma(scale.x, dot, a);
}

fn widen4(codes: vec4<f32>, scale: Scale) -> vec4<f32> {
  return scale.x * codes;
}
