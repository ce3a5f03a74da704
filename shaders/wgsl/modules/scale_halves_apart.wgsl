// w = d s q, s for each half of a group: signed bytes, two groups a word, then d as f16 for super-blocks
// of 8 groups, two a word. (d, 0, s of the lower half, of the upper).
alias Scale = vec4<f32>;

fn scale_words(groups: u32) -> u32 {
  return ((groups + 1u) >> 1u) + ((groups + 15u) >> 4u);
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let at = scale_row(row, groups);
  let s = bitcast<i32>(stream_half(at, group_order(groups, group)));
  let d = unpack2x16float(stream_half(at + ((groups + 1u) >> 1u), group >> 3u)).x;
  return vec4<f32>(d, 0.0, f32((s << 24u) >> 24u), f32((s << 16u) >> 24u));
}
