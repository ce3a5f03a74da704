// a and a group, whose partial sum this is, where codes are weights: times the inputs' scale.
fn group_close(a: f32, p: Partial, s: Sums, scale: Scale) -> f32 {
  return fma(s.x, partial_dot(p, scale), a);
}
