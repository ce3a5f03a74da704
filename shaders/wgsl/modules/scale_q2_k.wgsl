// w = d s q - dmin m: in the stream a byte a half group, s in its low four bits and m in the high, then
// d and dmin as f16, a word a super-block of 8 groups.
struct Scale {
  d: f32,
  // Less than zero where the file's is more.
  dmin: f32,
  s: vec2<f32>,
  m: vec2<f32>,
}

fn scale_words(groups: u32) -> u32 {
  return ((groups + 1u) >> 1u) + ((groups + 7u) >> 3u);
}

fn group_scale(row: u32, groups: u32, group: u32) -> Scale {
  let at = scale_row(row, groups);
  let b = stream_half(at, group_order(groups, group));
  let d = unpack2x16float(ws[at + ((groups + 1u) >> 1u) + (group >> 3u)]);
  return Scale(d.x, -d.y,
    vec2<f32>(vec2<u32>(b & 15u, (b >> 8u) & 15u)),
    vec2<f32>(vec2<u32>((b >> 4u) & 15u, (b >> 12u) & 15u)));
}
