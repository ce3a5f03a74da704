// w = d s q: s as signed bytes, a span of four groups a word, then d as f16 for super-blocks of 8
// groups, two a word. d s is exact.
alias Scale = vec2<f32>;

fn scale_words(groups: u32) -> u32 {
  return ((groups + 3u) >> 2u) + ((groups + 15u) >> 4u);
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let at = scale_row(row, groups);
  let s = bitcast<i32>(ws[at + (group >> 2u)] << (24u - 8u * (group & 3u))) >> 24u;
  let d = unpack2x16float(stream_half(at + ((groups + 3u) >> 2u), group >> 3u)).x;
  return vec2<f32>(d * f32(s), 0.0);
}

// a + what a group adds, from its dot of codes.
fn group_add(a: f32, dot: f32, sum: f32, scale: Scale) -> f32 {
  return fma(scale.x, dot, a);
}

fn widen4(codes: vec4<f32>, scale: Scale) -> vec4<f32> {
  return scale.x * codes;
}
