// w = d q, where q has the signed scales of the halves of groups in it: these as bytes, two groups
// a word, then d as f16 for super-blocks of 8 groups, two a word.
alias Scale = vec2<f32>;

fn scale_words(groups: u32) -> u32 {
  return ((groups + 1u) >> 1u) + ((groups + 15u) >> 4u);
}

fn half_scales(row: u32, groups: u32, group: u32) -> vec2<f32> {
  let s = bitcast<i32>(stream_half(scale_row(row, groups), group_order(groups, group)));
  return vec2<f32>(vec2<i32>((s << 24u) >> 24u, (s << 16u) >> 24u));
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let at = scale_row(row, groups) + ((groups + 1u) >> 1u);
  return vec2<f32>(unpack2x16float(stream_half(at, group >> 3u)).x, 0.0);
}

// a + what a group adds, from its dot of codes.
fn group_add(a: f32, dot: f32, sum: f32, scale: Scale) -> f32 {
  return fma(scale.x, dot, a);
}

fn widen4(codes: vec4<f32>, scale: Scale) -> vec4<f32> {
  return scale.x * codes;
}
